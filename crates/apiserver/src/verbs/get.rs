//! One object, as it is stored.

use super::Call;
use super::list_options::parse_revision;
use crate::error::{ApiError, Result};
use crate::server::Body;
use http::Response;

pub async fn get(call: &Call) -> Result<Response<Body>> {
    match call.query.text("resourceVersion") {
        "" | "0" => {}
        text => {
            let revision = parse_revision(text).map_err(|error| match is_cached(call) {
                true => error,
                false => ApiError::bad_request(format!("invalid resource version: {}", error.message)),
            })?;
            super::list::wait_for(call, revision).await?;
        }
    }
    let record = call.existing().await?;
    call.answer_record(200, &record).await
}

/// Whether Kubernetes reads the kind through its cache, which words some refusals differently from the store.
fn is_cached(call: &Call) -> bool {
    call.resource.plural != "events"
}
