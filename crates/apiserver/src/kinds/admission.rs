//! Admission that belongs to the API itself: a namespace that is missing or going takes no new objects.

use super::namespace;
use crate::admission::Review;
use crate::error::Result;
use crate::verbs::Call;

pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    namespace::lifecycle(call, review).await
}

pub async fn validate(_call: &Call, _review: &mut Review) -> Result<()> {
    Ok(())
}
