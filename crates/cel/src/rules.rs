//! The CEL rules of a custom resource's schema.
