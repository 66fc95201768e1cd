//! Custom resources: from a CustomResourceDefinition to a served kind.

use serde_json::Value;

/// What a resource needs to know of the definition it comes from.
#[derive(Debug, Default)]
pub struct CustomKind {
    /// Name of the definition, `webapps.stead.dev`.
    pub definition: String,
    /// `openAPIV3Schema` of this version as the definition has it, which OpenAPI publishes; null where there is none.
    pub schema: Value,
    /// `additionalPrinterColumns` of this version, for tables.
    pub columns: Vec<PrinterColumn>,
    /// JSON paths of `selectableFields` of this version.
    pub selectable_fields: Vec<String>,
    /// Where the `scale` subresource finds its numbers; empty paths where there is none.
    pub scale: ScalePaths,
}

/// JSON paths of the `scale` subresource: `.spec.replicas`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub selector: String,
}

/// One column of `additionalPrinterColumns`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}
