//! The OpenAPI documents, versions 2 and 3.
