//! Custom resources: from a CustomResourceDefinition to a served kind.

/// What a resource needs to know of the definition it comes from.
#[derive(Debug)]
pub struct CustomKind {
    /// Name of the definition, `webapps.stead.dev`.
    pub definition: String,
}
