//! Server-side apply, and the ownership of fields that every write keeps up to date.
//!
//! Each manager owns a set of fields. An update takes over what it changes; an apply says the whole of
//! what its manager wants, so what it no longer says goes away, and what others own is a conflict. The
//! rules are those of Kubernetes' structured merge and diff, walked over the one schema structure that
//! built-in and custom kinds share.

use crate::schema::SchemaRef;
use crate::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::sync::LazyLock;

mod check;
mod compare;
mod conflict;
mod element;
mod fields;
mod managers;
mod merge;
mod settled;
mod typed;

pub use compare::Comparison;
pub use conflict::{Cause, Conflicts};
pub use element::{Element, ElementError, Literal, path_text};
pub use fields::FieldSet;
pub use managers::{Managed, Manager, Managers, ManagersError, Operation};
pub use settled::changes_nothing;
use typed::Type;

/// The owner of fields that were there before anything was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager that kubectl applies with; it may take over what client-side apply set.
const KUBECTL: &str = "kubectl";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata that nobody owns because the server sets it or because it names the object.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// The kind of the objects that are written.
#[derive(Clone, Copy)]
pub struct Kind<'a> {
    pub schema: SchemaRef<'a>,
    /// Fields that the endpoint does not let anybody set (`status` on the main resource), and so nobody owns.
    pub reset: &'a FieldSet,
    /// What an object holds before anybody sets anything, and so is nobody's. Go's types of built-in kinds write
    /// structs, numbers and nulls that nobody asked for; custom resources begin with nothing.
    pub fresh: &'a dyn Fn() -> Value,
}

/// Who writes, where and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub now: Timestamp,
}

/// Whether an applier takes over fields that others own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    Yes,
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409, with a cause for each field.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// 400.
    #[error("{0}")]
    Malformed(String),
    /// The configuration does not fit the schema: 500 in Kubernetes, with this message.
    #[error("{0}")]
    Untyped(String),
}

/// Brings `managedFields` of an object up to date after a create, update or patch.
///
/// `live` is the stored object (`None` for a create) and `new` what is about to be stored, with whatever
/// `managedFields` the client sent.
pub fn track(live: Option<&Value>, new: &mut Value, kind: &Kind<'_>, writer: &Writer<'_>) {
    let sent = take_managed_fields(new);
    let stored = live.map_or(&Value::Null, managed_fields);
    let mut managers = if writer.subresource.is_empty() {
        match sent.as_ref() {
            Some(sent) if is_reset(sent) => Managers::default(),
            Some(sent) => match Managers::decode(sent) {
                Ok(sent) if !sent.is_empty() => sent,
                _ => Managers::decode(stored).unwrap_or_default(),
            },
            None => Managers::decode(stored).unwrap_or_default(),
        }
    } else {
        Managers::decode(stored).unwrap_or_default()
    };
    // An object that is there and that nobody tracks stays untracked until somebody applies to it.
    if managers.is_empty() && live.is_some() {
        return;
    }
    let empty;
    let before = match live {
        Some(live) => live,
        None => {
            empty = (kind.fresh)();
            &empty
        }
    };
    note_update(before, new, &mut managers, kind, writer);
    put_managed_fields(new, &managers);
}

/// Whether fields of an object of this kind can be owned. A custom resource may hold what its schema does not describe
/// well enough for that, and then nobody owns anything of it.
pub fn can_be_owned(object: &Value, schema: SchemaRef<'_>) -> bool {
    check::owned(object, Type::of(schema)).is_ok()
}

/// Applies a configuration to the stored object, or to nothing for a create. The result still has to be
/// defaulted and validated; `managedFields` is in place.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    force: Force,
) -> Result<Value, ApplyError> {
    if !managed_fields(config).is_null() {
        return Err(ApplyError::Malformed("metadata.managedFields must be nil".to_string()));
    }
    check::check(config, Type::of(kind.schema)).map_err(|e| {
        let what = described(config, writer);
        ApplyError::Untyped(format!("failed to create typed patch object ({what}): {e}"))
    })?;
    let stored = live.map_or(&Value::Null, managed_fields);
    let mut managers =
        Managers::decode(stored).map_err(|e| ApplyError::Untyped(format!("failed to decode managed fields: {e}")))?;
    let mut before = live.cloned().unwrap_or_else(|| identity(config));
    take_managed_fields(&mut before);
    if managers.is_empty() && live.is_some() {
        // Nobody owns what does not fit its schema, so there is nothing to begin with.
        check::owned(&before, Type::of(kind.schema)).map_err(|e| {
            let what = described(&before, writer);
            ApplyError::Untyped(format!(
                "failed to create manager for existing fields: failed to convert new object ({what}) to smd typed: {e}"
            ))
        })?;
        let first = Writer {
            manager: BEFORE_FIRST_APPLY,
            ..*writer
        };
        note_update(&(kind.fresh)(), &before, &mut managers, kind, &first);
    }
    let merged = match merge_config(&before, config, managers.clone(), kind, writer, force) {
        Err(conflicts) if writer.manager == KUBECTL => {
            let conflicts = conflicts.without(&set_by_client_side_apply(&before, kind, writer));
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            merge_config(&before, config, managers, kind, writer, Force::Yes)
        }
        other => other,
    };
    let (mut object, managers) = merged.map_err(ApplyError::Conflicts)?;
    if writer.manager == KUBECTL {
        refresh_last_applied(&mut object, config);
    }
    put_managed_fields(&mut object, &managers);
    Ok(object)
}

/// How a refusal names an object.
fn described(object: &Value, writer: &Writer<'_>) -> String {
    let (namespace, name) = (meta_text(object, "namespace"), meta_text(object, "name"));
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let core = if writer.api_version.contains('/') { "" } else { "/" };
    format!("{namespace}/{name}; {core}{}, Kind={kind}", writer.api_version)
}

/// What an apply that creates starts from: the type of the object and nothing else.
fn identity(config: &Value) -> Value {
    let type_of = ["apiVersion", "kind"]
        .into_iter()
        .filter_map(|name| Some((name.to_string(), config.get(name)?.clone())));
    Value::Object(type_of.collect())
}

/// Gives `new` the stored times back where nothing but times changed, so that a write without effect is
/// seen as one.
pub fn keep_times_of_unchanged(live: &Value, new: &mut Value) {
    if managed_fields(live) == managed_fields(new) || !is_same_but_managers(live, new) {
        return;
    }
    let (Ok(before), Ok(after)) = (
        Managers::decode(managed_fields(live)),
        Managers::decode(managed_fields(new)),
    ) else {
        return;
    };
    // Two entries of one manager are read as one, and are two all the same.
    let count = |object: &Value| managed_fields(object).as_array().map_or(0, Vec::len);
    let same_sets =
        count(live) == count(new)
            && before.entries.len() == after.entries.len()
            && before.entries.iter().zip(&after.entries).all(|((a, one), (b, other))| {
                a == b && one.fields == other.fields && one.api_version == other.api_version
            });
    if let (true, Some(Value::Object(metadata))) = (same_sets, new.get_mut("metadata")) {
        metadata.insert("managedFields".to_string(), managed_fields(live).clone());
    }
}

/// Whether two objects are the same in everything but `managedFields`.
fn is_same_but_managers(left: &Value, right: &Value) -> bool {
    let (Value::Object(one), Value::Object(other)) = (left, right) else {
        return false;
    };
    fn rest(metadata: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = metadata.as_object().into_iter().flatten();
        fields.filter(|(name, _)| *name != "managedFields")
    }
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(a, b)| a.0 == b.0 && (a.0 == "metadata" || a.1 == b.1))
        && rest(&left["metadata"]).eq(rest(&right["metadata"]))
}

/// Lets the writer own what differs between two objects, and everybody else lose it.
fn note_update(before: &Value, after: &Value, managers: &mut Managers, kind: &Kind<'_>, writer: &Writer<'_>) {
    let root = Type::of(kind.schema);
    managers
        .entries
        .values_mut()
        .for_each(|managed| managed.fields.fit(root));
    let found = compare::compare(before, after, root).without(kind.reset);
    take_from_others(managers, &found, None);
    let mut changed = found.modified;
    changed.absorb(found.added);
    changed.subtract(&UNOWNED);
    if !changed.is_empty() {
        let own = Manager::new(
            writer.manager,
            Operation::Update,
            writer.api_version,
            writer.subresource,
        );
        let managed = managers.entries.entry(own).or_insert_with(|| Managed {
            fields: FieldSet::new(),
            api_version: writer.api_version.to_string(),
            time: None,
        });
        managed.fields.absorb(changed);
        managed.time = Some(rfc3339(writer.now));
    }
    managers.cap();
}

/// Takes changed and removed fields from everybody but the writer.
fn take_from_others(managers: &mut Managers, found: &Comparison, own: Option<&Manager>) {
    for (manager, managed) in &mut managers.entries {
        if Some(manager) != own {
            for gone in [&found.modified, &found.added, &found.removed] {
                managed.fields.subtract(gone);
            }
        }
    }
    managers.entries.retain(|_, managed| !managed.fields.is_empty());
}

fn merge_config(
    live: &Value,
    config: &Value,
    mut managers: Managers,
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    force: Force,
) -> Result<(Value, Managers), Conflicts> {
    let root = Type::of(kind.schema);
    managers
        .entries
        .values_mut()
        .for_each(|managed| managed.fields.fit(root));
    let own = Manager::new(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
    let mut merged = merge::merge(live, config, root);
    let mut set = compare::field_set(config, root);
    set.cut(kind.reset);
    let last = managers.entries.remove(&own);
    let applied = Managed {
        fields: set,
        api_version: writer.api_version.to_string(),
        time: last.as_ref().and_then(|last| last.time.clone()),
    };
    managers.entries.insert(own.clone(), applied);
    if let Some(last) = last.filter(|last| !last.fields.is_empty()) {
        merged = prune(merged, &last.fields, &managers, root);
    }
    let found = compare::compare(live, &merged, root).without(kind.reset);
    let changed = found.modified.union(&found.added);
    let mut conflicts = Conflicts::default();
    for (manager, managed) in managers.entries.iter().filter(|(manager, _)| **manager != own) {
        let contested = managed.fields.intersection(&changed);
        if !contested.is_empty() {
            conflicts.add(manager, managed, contested);
        }
    }
    if force == Force::No && !conflicts.is_empty() {
        return Err(conflicts);
    }
    take_from_others(&mut managers, &found, Some(&own));
    if let Some(managed) = managers.entries.get_mut(&own) {
        managed.fields.subtract(&UNOWNED);
        if merged != *live {
            managed.time = Some(rfc3339(writer.now));
        }
    }
    managers.entries.retain(|_, managed| !managed.fields.is_empty());
    Ok((merged, managers))
}

/// Removes what this manager applied the last time, did not apply this time, and nobody else owns.
fn prune(merged: Value, last: &FieldSet, managers: &Managers, root: Type<'_>) -> Value {
    let nothing = || Value::Object(Map::new());
    let named = |set: &FieldSet| set.with_named_fields(Some(root));
    let last = named(last);
    let pruned = merge::remove(&merged, &last, root).unwrap_or_else(nothing);
    let owned = managers
        .entries
        .values()
        .fold(FieldSet::new(), |all, managed| all.union(&managed.fields));
    let all = named(&compare::field_set(&merged, root));
    let kept = named(&compare::field_set(&pruned, root)).union(&named(&owned));
    let pruned = merge::remove(&merged, &all.difference(&kept), root).unwrap_or_else(nothing);
    // What is gone must have been this manager's; anything else comes back.
    let kept = named(&compare::field_set(&pruned, root));
    let gone = all.difference(&kept).intersection(&last);
    merge::remove(&merged, &gone, root).unwrap_or_else(nothing)
}

/// The fields that client-side apply set last and that still have those values: kubectl may take them
/// over without a conflict.
fn set_by_client_side_apply(live: &Value, kind: &Kind<'_>, writer: &Writer<'_>) -> FieldSet {
    let root = Type::of(kind.schema);
    let Some(last) = last_applied(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return FieldSet::new();
    };
    if last.get("apiVersion").and_then(Value::as_str) != Some(writer.api_version) || check::check(&last, root).is_err()
    {
        return FieldSet::new();
    }
    let changed = compare::compare(&last, live, root);
    compare::field_set(&last, root)
        .difference(&changed.modified)
        .difference(&changed.added)
        .difference(&changed.removed)
}

/// Keeps the annotation of client-side apply true for as long as an object has it.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    if last_applied(object).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.insert(LAST_APPLIED.to_string(), format!("{config}\n").into());
    }
}

fn last_applied(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()
}

fn managed_fields(object: &Value) -> &Value {
    let entries = object
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    entries.unwrap_or(&Value::Null)
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed_fields(object: &mut Value, managers: &Managers) {
    let entries = managers.encode();
    let Value::Object(object) = object else {
        return;
    };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let (Value::Object(metadata), false) = (metadata, entries.is_null()) {
        metadata.insert("managedFields".to_string(), entries);
    }
}

/// A client resets the entries by sending an empty list, or a list with one empty entry.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    let text = object.get("metadata").and_then(|metadata| metadata.get(field));
    text.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
