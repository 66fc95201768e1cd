//! Admission and conversion webhooks, with certificates of their own.
//!
//! Handlers are typed functions. The server makes its own authority and certificate, keeps them in a Secret that
//! all replicas share, rotates them with overlap, and keeps the `caBundle` of every configuration that points to it
//! current: no cert-manager is needed.

mod certificates;
mod handlers;
mod injection;
mod keeper;
mod tls;

pub use certificates::{Authority, Material, Names, Serving};
pub use handlers::{Asked, Denial, Operation};
pub use injection::Target;
pub(crate) use keeper::Keeper;
pub use keeper::WebhookOptions;
pub(crate) use tls::{Reloading, serve};

use crate::kind::Typed;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use handlers::Handlers;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Bytes that a review may have: an object of the largest size that the API server stores, before and after, or a list
/// of objects to convert.
const LONGEST_REVIEW: usize = 64 << 20;

/// The webhooks of a manager.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use stead::webhook::{Asked, Denial, Webhooks};
///
/// let webhooks = Webhooks::new()
///     .validate("/validate-settings", |asked: &Asked<ConfigMap>| {
///         let settings = asked.object.as_ref().and_then(|object| object.data.as_ref());
///         match settings.is_some_and(|settings| settings.contains_key("mode")) {
///             true => Ok(Vec::new()),
///             false => Err(Denial::new("data.mode is missing")),
///         }
///     })
///     .mutate("/default-settings", |object: &mut ConfigMap, _: &Asked<ConfigMap>| {
///         object.data.get_or_insert_default().entry("mode".to_owned()).or_insert("calm".to_owned());
///         Ok(())
///     });
/// ```
#[derive(Default)]
pub struct Webhooks {
    handlers: Handlers,
}

impl Webhooks {
    /// None yet.
    pub fn new() -> Self {
        Webhooks::default()
    }

    /// Accepts (with warnings) or denies objects of a kind, at a path.
    pub fn validate<K: Typed>(
        mut self,
        path: &str,
        check: impl Fn(&Asked<K>) -> Result<Vec<String>, Denial> + Send + Sync + 'static,
    ) -> Self {
        self.handlers.add(path, handlers::validating(check));
        self
    }

    /// Changes objects of a kind on their way in, at a path. Fields that the type does not know are kept, and so are objects
    /// that are none of the type: the schema, which is asked next, has better words for them.
    pub fn mutate<K: Typed + Serialize>(
        mut self,
        path: &str,
        change: impl Fn(&mut K, &Asked<K>) -> Result<(), Denial> + Send + Sync + 'static,
    ) -> Self {
        self.handlers.add(path, handlers::mutating(change));
        self
    }

    /// Converts objects to the version that is asked for, at a path.
    pub fn convert(
        mut self,
        path: &str,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.handlers.add(path, handlers::converting(convert));
        self
    }

    /// What answers the API server's requests.
    pub(crate) fn router(self, metrics: crate::metrics::Metrics) -> Router {
        let handlers = Arc::new(self.handlers);
        let mut router = Router::new();
        for path in handlers.paths() {
            let (handlers, metrics, name) = (handlers.clone(), metrics.clone(), path.clone());
            let answer = move |body: axum::body::Bytes| async move { handlers.answer(&name, &body, &metrics) };
            router = router.route(&path, post(answer));
        }
        router.layer(DefaultBodyLimit::max(LONGEST_REVIEW))
    }
}

#[cfg(test)]
mod tests;
