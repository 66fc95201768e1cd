//! `metadata.managedFields`: who owns which fields, since when and how.

use super::element::ElementError;
use super::fields::FieldSet;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Update entries that an object keeps apart; older ones are folded into one.
const MOST_UPDATERS: usize = 10;

/// The name under which folded entries go on.
const OLD_UPDATERS: &str = "ancient-changes";

/// Who made a write, and how. Two writes with the same identity share an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// The version of an update; appliers keep one entry across versions.
    pub api_version: String,
    pub subresource: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    /// Its spelling in `managedFields`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// What a manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    pub fields: FieldSet,
    /// The version that the field names are of.
    pub api_version: String,
    /// RFC 3339; absent when the entry never changed a value.
    pub time: Option<String>,
}

/// All entries of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers {
    pub entries: BTreeMap<Manager, Managed>,
}

/// Why stored entries could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagersError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    NoVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoType(usize),
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    UnknownType(usize, String),
    #[error("error decoding versioned set in managed fields entry {0}: error decoding set: {1}")]
    Fields(usize, ElementError),
}

impl Manager {
    pub(super) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Manager {
            name: if name.is_empty() { "unknown" } else { name }.to_string(),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => api_version.to_string(),
            },
            subresource: subresource.to_string(),
        }
    }

    /// What tells this manager's entry from others, as text that sorts as Kubernetes sorts it.
    pub(super) fn identity(&self, managed: &Managed) -> String {
        let mut parts = vec![("manager", self.name.as_str())];
        match self.operation {
            Operation::Apply => parts.push(("operation", "Apply")),
            Operation::Update => {
                parts.push(("operation", "Update"));
                parts.push(("apiVersion", self.api_version.as_str()));
                parts.extend(managed.time.as_deref().map(|time| ("time", time)));
            }
        }
        if !self.subresource.is_empty() {
            parts.push(("subresource", self.subresource.as_str()));
        }
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(name, value)| format!("{name:?}:{value:?}"))
            .collect();
        format!("{{{}}}", parts.join(","))
    }

    /// The manager as conflict messages name it: `"m" with subresource "status" using apps/v1`.
    pub fn described(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text += &format!(" using {}", self.api_version);
        }
        text
    }
}

impl Managers {
    /// Reads the entries of an object's metadata.
    pub fn decode(managed_fields: &Value) -> Result<Self, ManagersError> {
        let mut managers = Managers::default();
        for (index, entry) in managed_fields.as_array().into_iter().flatten().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagersError::Operation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(ManagersError::NoVersion);
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(ManagersError::NoType(index)),
                other => return Err(ManagersError::UnknownType(index, other.to_string())),
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::new(),
                Some(fields) => FieldSet::decode(fields).map_err(|e| ManagersError::Fields(index, e))?,
            };
            let mut manager = Manager::new(text("manager"), operation, api_version, text("subresource"));
            // A stored entry without a name keeps none, unlike a request without one.
            manager.name = text("manager").to_string();
            let time = entry.get("time").and_then(Value::as_str).map(str::to_string);
            let api_version = api_version.to_string();
            managers.entries.insert(
                manager,
                Managed {
                    fields,
                    api_version,
                    time,
                },
            );
        }
        Ok(managers)
    }

    /// The entries as metadata carries them, in Kubernetes' order; `Null` when there are none.
    pub fn encode(&self) -> Value {
        if self.entries.is_empty() {
            return Value::Null;
        }
        let mut entries: Vec<(&Manager, &Managed)> = self.entries.iter().collect();
        entries.sort_by_key(|(manager, managed)| {
            (
                manager.operation,
                &managed.time,
                &manager.name,
                &managed.api_version,
                &manager.subresource,
            )
        });
        let encoded = entries.into_iter().map(|(manager, managed)| {
            // Not with `json!`, which would copy the fields once more.
            let mut entry = Map::new();
            let mut put = |name: &str, value: Value| entry.insert(name.to_string(), value);
            put("apiVersion", managed.api_version.as_str().into());
            put("fieldsType", "FieldsV1".into());
            put("fieldsV1", managed.fields.encode());
            put("operation", manager.operation.name().into());
            for (name, text) in [("manager", &manager.name), ("subresource", &manager.subresource)] {
                if !text.is_empty() {
                    put(name, text.as_str().into());
                }
            }
            if let Some(time) = &managed.time {
                put("time", time.as_str().into());
            }
            Value::Object(entry)
        });
        Value::Array(encoded.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Folds the oldest updaters of each version together until few enough are left.
    pub(super) fn cap(&mut self) {
        let updaters = || {
            let entries = self.entries.iter();
            entries.filter(|(manager, _)| manager.operation == Operation::Update)
        };
        let mut left = updaters().count();
        if left <= MOST_UPDATERS {
            return;
        }
        let mut updaters: Vec<(Option<String>, Manager)> = updaters()
            .map(|(manager, managed)| (managed.time.clone(), manager.clone()))
            .collect();
        updaters.sort();
        let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
        for (time, manager) in updaters {
            if left <= MOST_UPDATERS {
                break;
            }
            let version = manager.api_version.clone();
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, manager);
                continue;
            };
            let bucket = Manager::new(OLD_UPDATERS, Operation::Update, &version, "");
            if !self.entries.contains_key(&bucket)
                && let Some(managed) = self.entries.remove(first)
            {
                self.entries.insert(bucket.clone(), managed);
            }
            if bucket == manager {
                continue;
            }
            let folded = self.entries.remove(&manager);
            if let (Some(bucket), Some(folded)) = (self.entries.get_mut(&bucket), folded) {
                bucket.fields.extend(&folded.fields);
                bucket.time = time;
            }
            left -= 1;
        }
    }
}
