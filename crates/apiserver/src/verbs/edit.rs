//! Changes that the server itself makes to an object in the course of a request.

use super::{Call, encode};
use crate::error::{ApiError, Result};
use crate::store::{Key, Record, StoreError, Write};
use serde_json::Value;
use std::sync::Arc;

/// How often a change is tried again when another write came between.
const ATTEMPTS: usize = 100;

/// Changes a stored object. `change` may be called several times, each time with a newer state; it refuses by
/// an error.
pub async fn edit(call: &Call, key: &Key, change: impl Fn(&mut Value) -> Result<()>) -> Result<Arc<Record>> {
    let store = &call.shared.store;
    for _ in 0..ATTEMPTS {
        let found = store
            .get(key)
            .await
            .map_err(|error| call.store_error(error, &key.name))?;
        let record = found.ok_or_else(|| ApiError::not_found(&call.group_resource(), &key.name))?;
        let mut object = (*record.value()).clone();
        change(&mut object)?;
        if object == *record.value() {
            return Ok(record);
        }
        let write = Write::Update {
            key: key.clone(),
            draft: encode::draft(&object),
            expect: record.revision,
        };
        match store.write(write).await {
            Ok(written) => return Ok(written),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(call.store_error(error, &key.name)),
        }
    }
    Err(ApiError::modified(&call.group_resource(), &key.name))
}
