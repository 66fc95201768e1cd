//! Delete of everything that a list would show.

use super::Call;
use super::delete::{DeleteOptions, delete_object};
use super::list::read;
use super::list_options::{ListOptions, Watching};
use crate::error::Result;
use crate::server::{Body, respond};
use http::Response;
use serde_json::{Value, json};

pub async fn delete_collection(call: &Call, body: Body) -> Result<Response<Body>> {
    let list = ListOptions::parse(&call.resource, &call.query, Watching::No)?;
    let options = DeleteOptions::read(call, body).await?;
    if let Some(warning) = crate::kinds::delete_warning(call, options.propagation.as_deref()) {
        call.warn(warning);
    }
    let listed = read(call, &list).await?;
    let mut items: Vec<Value> = Vec::new();
    for record in &listed.records {
        let one = call.in_namespace(&record.key.namespace);
        match delete_object(&one, &record.key.name, &options).await {
            // Somebody else was faster, which is as good.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
            Ok(_) => items.push(super::list::item(call, call.in_version(&record.value()).await?)),
        }
    }
    let mut answer = json!({
        "kind": call.resource.list_kind, "apiVersion": call.resource.api_version(),
        "metadata": {"resourceVersion": listed.revision.to_string()}, "items": items,
    });
    if super::selection::is_custom(&call.resource) {
        answer["metadata"]["continue"] = "".into();
    }
    respond::object(200, &answer, call.accepted)
}
