//! Which objects of a list or watch a client wants: label and field selectors.

use super::object;
use crate::catalogue::{Origin, Resource};
use crate::error::{ApiError, Result};
use crate::kinds::fields;
use crate::server::query::Query;
use crate::store::Record;
use serde_json::Value;
use stead_machinery::selector::{FieldRequirement, FieldSelector, LabelSelector};

/// Both selectors of a request.
#[derive(Debug, Clone)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Reads both selectors; whether a kind has the fields is another question.
    pub fn parse(query: &Query) -> Result<Self> {
        let labels = LabelSelector::parse(query.text("labelSelector"))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.text("fieldSelector"))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(Selection { labels, fields })
    }

    /// The same selection, if a kind can be selected by its fields.
    pub fn checked(self, resource: &Resource) -> Result<Self> {
        for requirement in &self.fields.requirements {
            fields::check(resource, requirement.field())?;
        }
        Ok(self)
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The same selection, of one object only.
    pub fn with_name(mut self, name: &str) -> Result<Self> {
        match self.fields.exact("metadata.name") {
            Some(selected) if selected == name => Ok(self),
            None if self.fields.is_everything() => {
                self.fields.requirements.push(FieldRequirement::Equals {
                    field: "metadata.name".to_string(),
                    value: name.to_string(),
                });
                Ok(self)
            }
            _ => Err(ApiError::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            )),
        }
    }

    /// The one name that can match, if the selector fixes it.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    pub fn matches(&self, resource: &Resource, record: &Record) -> bool {
        if !self.labels.is_everything() && !self.labels.matches(&record.metadata().labels) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        self.fields.matches(|field| match field {
            "metadata.name" => Some(record.key.name.as_str()),
            "metadata.namespace" => Some(record.key.namespace.as_str()),
            field => record
                .fields(|object| fields::extract(resource, object))
                .iter()
                .find(|(name, _)| name == field)
                .map(|(_, value)| value.as_str()),
        })
    }

    /// The same for an object that is not stored.
    pub fn matches_object(&self, resource: &Resource, value: &Value) -> bool {
        let labels: std::collections::BTreeMap<String, String> = value["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_string())))
            .collect();
        let extracted = fields::extract(resource, value);
        self.labels.matches(&labels)
            && self.fields.matches(|field| match field {
                "metadata.name" => Some(object::name(value)),
                "metadata.namespace" => Some(object::namespace(value)),
                field => extracted
                    .iter()
                    .find(|(name, _)| name == field)
                    .map(|(_, value)| value.as_str()),
            })
    }
}

/// Whether a resource's definition says which of its fields can be selected by.
pub fn is_custom(resource: &Resource) -> bool {
    matches!(resource.origin, Origin::Custom(_))
}
