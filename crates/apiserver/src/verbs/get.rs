//! One object, as it is stored.

use super::Call;
use super::list_options::parse_revision;
use crate::error::Result;
use crate::server::Body;
use http::Response;

pub async fn get(call: &Call) -> Result<Response<Body>> {
    match call.query.text("resourceVersion") {
        "" | "0" => {}
        text => super::list::wait_for(call, parse_revision(text)?).await?,
    }
    let record = call.existing().await?;
    call.answer_record(200, &record).await
}
