//! What each verb does to a resource.
