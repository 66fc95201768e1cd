//! Who owns the replicas: told for the object that keeps them, and for its scale.
//!
//! To everybody who writes through `scale` the replicas are `spec.replicas` of `autoscaling/v1`, wherever the object
//! has them. So the entries of those who own them are brought into that form before the write and back after it.

use crate::catalogue::{Origin, Resource};
use crate::verbs::object;
use serde_json::Value;
use stead_machinery::apply::{Element, FieldSet, Managed, Manager, Managers, Operation};

/// What a scale says of itself.
pub const API_VERSION: &str = "autoscaling/v1";

/// Where a scale has its replicas.
const REPLICAS: &str = "spec.replicas";

/// The owners of an object, and where it keeps its replicas.
pub struct Owners<'a> {
    resource: &'a Resource,
    entries: Managers,
    path: &'a str,
}

impl<'a> Owners<'a> {
    /// Entries that cannot be read are nobody's.
    pub fn of(resource: &'a Resource, object: &Value, path: &'a str) -> Self {
        let entries = Managers::decode(&object["metadata"]["managedFields"]).unwrap_or_default();
        Owners {
            resource,
            entries,
            path,
        }
    }

    /// The owners of the replicas, as entries of the scale.
    pub fn of_scale(&self) -> Managers {
        let place = steps(self.path);
        let owning = self
            .entries
            .entries
            .iter()
            .filter(|(_, managed)| self.is_known(managed) && managed.fields.has(&place));
        let entries = owning.map(|(manager, managed)| {
            let mut manager = manager.clone();
            if manager.operation == Operation::Update {
                manager.api_version = API_VERSION.to_string();
            }
            let managed = Managed {
                fields: FieldSet::of(&[REPLICAS]),
                api_version: API_VERSION.to_string(),
                time: managed.time.clone(),
            };
            (manager, managed)
        });
        Managers {
            entries: entries.collect(),
        }
    }

    /// The owners of the object after a write that left the scale to these.
    ///
    /// Kubernetes tells updaters apart by the version of what they wrote. One that owned the replicas before and owns
    /// them still is somebody else for the scale, and gets an entry of its own for them.
    pub fn of_object(&self, scale: &Value) -> Managers {
        let place = steps(self.path);
        let replicas = FieldSet::of(&[self.path]);
        let mut left = Managers::decode(&scale["metadata"]["managedFields"]).unwrap_or_default();
        let mut after = Managers::default();
        let known = self
            .entries
            .entries
            .iter()
            .filter(|(_, managed)| self.is_known(managed));
        for (manager, managed) in known {
            let mut managed = managed.clone();
            if managed.fields.has(&place) && left.entries.remove(manager).is_none() {
                managed.fields.subtract(&replicas);
            }
            if !managed.fields.is_empty() {
                after.entries.insert(manager.clone(), managed);
            }
        }
        let place_in_scale = steps(REPLICAS);
        for (manager, _) in left
            .entries
            .into_iter()
            .filter(|(_, managed)| managed.fields.has(&place_in_scale))
        {
            let time = self.time_of(&manager);
            let managed = Managed {
                fields: replicas.clone(),
                api_version: self.resource.api_version(),
                time,
            };
            after.entries.insert(manager, managed);
        }
        after
    }

    /// No time is noted for changes through a scale.
    fn time_of(&self, manager: &Manager) -> Option<String> {
        self.entries
            .entries
            .get(manager)
            .and_then(|managed| managed.time.clone())
    }

    /// Entries of versions that the kind never had are dropped.
    fn is_known(&self, managed: &Managed) -> bool {
        let version = managed.api_version.as_str();
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let had = match (&self.resource.origin, group) {
            (Origin::BuiltIn, "apps") => matches!(version, "v1" | "v1beta1" | "v1beta2"),
            (Origin::BuiltIn, _) => version == self.resource.version,
            (Origin::Custom(_), _) => true,
        };
        group == self.resource.group && had
    }
}

/// Puts entries into an object's metadata.
pub fn put(object: &mut Value, owners: &Managers) {
    let metadata = object::metadata_mut(object);
    match owners.encode() {
        Value::Null => metadata.remove("managedFields"),
        entries => metadata.insert("managedFields".to_string(), entries),
    };
}

fn steps(path: &str) -> Vec<Element> {
    path.split('.').map(Element::field).collect()
}
