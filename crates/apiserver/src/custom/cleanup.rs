//! The end of a definition: its objects go first.
//!
//! Deleting a definition deletes its objects in the same request. Objects that finalizers hold keep the
//! definition, marked as terminating; whoever takes the last of them away takes the definition along.
//! No task waits for that, so there is nothing that a restart could forget: a definition that is left
//! over goes with the next delete of it or of one of its objects.

use super::status::set;
use super::{CLEANUP, GROUP, PLURAL};
use crate::catalogue::{Origin, Resource};
use crate::error::Result;
use crate::store::{Key, ListAt, Prefix, Window, Write};
use crate::verbs::delete::{DeleteOptions, delete_object};
use crate::verbs::{Call, encode, object};
use serde_json::{Value, json};
use std::sync::Arc;

/// Deletes the objects of a definition that is about to go; what is left of them holds it.
pub async fn begin(call: &Call, definition: &mut Value) -> Result<()> {
    let name = object::name(definition).to_string();
    let definitions = call.shared.definitions();
    let Some(parsed) = definitions.values().find(|parsed| parsed.name == name) else {
        return Ok(());
    };
    let Some(resource) = parsed.resources.first() else {
        return Ok(());
    };
    let options = DeleteOptions::parse(json!({}))?;
    for record in records(call, resource).await? {
        let instance = for_instance(call, resource, &record.key);
        // One object that cannot go must not keep the others.
        // The future is boxed because deleting an object may again be deleting a definition, for the compiler.
        let _ = Box::pin(delete_object(&instance, &record.key.name, &options)).await;
    }
    let left = !records(call, resource).await?.is_empty();
    let now = object::time(call.now);
    match left {
        true => {
            let mut finalizers = object::finalizers(definition);
            if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
                finalizers.push(CLEANUP.to_string());
            }
            object::set_finalizers(definition, &finalizers);
            let message = "CustomResource deletion is in progress";
            set(
                definition,
                "Terminating",
                "True",
                "InstanceDeletionInProgress",
                message,
                &now,
            );
        }
        false => {
            let finalizers = object::finalizers(definition);
            let others: Vec<String> = finalizers
                .into_iter()
                .filter(|finalizer| finalizer != CLEANUP)
                .collect();
            object::set_finalizers(definition, &others);
            let message = "removed all instances";
            set(
                definition,
                "Terminating",
                "False",
                "InstanceDeletionCompleted",
                message,
                &now,
            );
        }
    }
    Ok(())
}

/// An object of a definition is gone; if it was the last of a terminating one, that goes too.
pub async fn instance_gone(call: &Call) {
    let Origin::Custom(kind) = &call.resource.origin else {
        return;
    };
    if !kind.terminating
        || records(call, &call.resource)
            .await
            .map_or(true, |left| !left.is_empty())
    {
        return;
    }
    let key = Key::new(format!("{GROUP}/{PLURAL}"), "", kind.definition.as_str());
    let Ok(Some(record)) = call.shared.store.get(&key).await else {
        return;
    };
    let mut definition = (*record.value()).clone();
    let finalizers = object::finalizers(&definition);
    let others: Vec<String> = finalizers
        .into_iter()
        .filter(|finalizer| finalizer != CLEANUP)
        .collect();
    object::set_finalizers(&mut definition, &others);
    let (draft, expect) = (encode::draft(&definition), record.revision);
    let write = match others.is_empty() && object::is_deleting(&definition) {
        true => Write::Delete { key, draft, expect },
        false => Write::Update { key, draft, expect },
    };
    // Whoever wrote in between sees the same emptiness when it deletes.
    let _ = call.shared.store.write(write).await;
}

async fn records(call: &Call, resource: &Resource) -> Result<Vec<Arc<crate::store::Record>>> {
    let prefix = Prefix::resource(resource.storage());
    let page = call.shared.store.list(&prefix, ListAt::Latest, Window::default()).await;
    page.map(|page| page.records)
        .map_err(|error| call.store_error(error, ""))
}

fn for_instance(call: &Call, resource: &Arc<Resource>, key: &Key) -> Call {
    let mut instance = call.in_namespace(&key.namespace);
    instance.resource = resource.clone();
    instance.api_version = resource.api_version();
    instance.path.group = resource.group.clone();
    instance.path.version = resource.version.clone();
    instance.path.resource = resource.plural.clone();
    instance.path.name = key.name.clone();
    instance.path.subresource = String::new();
    instance
}
