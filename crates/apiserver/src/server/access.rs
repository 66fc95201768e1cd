//! Whether a request may go on, and as whom.

use super::request::RequestInfo;
use super::state::Shared;
use crate::auth::{Auth, User};
use crate::error::Result;
use crate::gate::RanAs;
use http::request::Parts;

/// Puts the user that the request runs as into its extensions; gives it back where that is not the sender.
///
/// A request without a user comes from inside the process, where whoever holds the server's value holds
/// the cluster; the gate gives every request from outside its user.
pub fn check(shared: &Shared, info: &RequestInfo, parts: &mut Parts) -> Result<Option<RanAs>> {
    let sender = match parts.extensions.get::<User>() {
        Some(user) => user.clone(),
        None => User::admin(),
    };
    if sender.is_master() && !Auth::asks_to_impersonate(&parts.headers) {
        parts.extensions.insert(sender);
        return Ok(None);
    }
    let wanted = info.attributes();
    let other = shared.auth.impersonate(&mut parts.headers, &sender, &wanted)?;
    let ran_as = other.clone().map(RanAs);
    let user = other.unwrap_or(sender);
    shared.auth.authorize(&user, &wanted)?;
    parts.extensions.insert(user);
    Ok(ran_as)
}
