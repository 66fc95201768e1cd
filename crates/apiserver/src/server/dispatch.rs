//! From a request to the code that answers it.

use super::body::Body;
use super::negotiate::{self, Accepted};
use super::query::Query;
use super::request::{RequestInfo, ResourcePath};
use super::state::Shared;
use super::{access, health, respond};
use crate::auth::User;
use crate::catalogue::{Origin, Resource};
use crate::error::{ApiError, Result};
use crate::verbs::{Call, collection, create, delete, get, list, update, watch};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;

/// Answers one request.
pub async fn handle(shared: Arc<Shared>, request: Request<Body>) -> Response<Body> {
    let started = Instant::now();
    let (mut parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let mut info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    let dry_run = query.get("dryRun").is_some();
    let _flight = shared.metrics.enter(info.verb);
    let accepted = negotiate::accept(&parts.headers, query.flag("pretty"));
    let for_errors = accepted.as_ref().ok().copied();
    let (outcome, ran_as) = match access::check(&shared, &info, &mut parts) {
        Ok(ran_as) => (
            admitted(&shared, &info, &mut parts, body, query, accepted).await,
            ran_as,
        ),
        Err(refused) => (Err(refused), None),
    };
    let mut response = outcome.unwrap_or_else(|error| respond::error(&error, for_errors));
    if let Some(ran_as) = ran_as {
        response.extensions_mut().insert(ran_as);
    }
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::default();
    }
    if response.status() == 404 && unknown(&shared, &info) {
        // Names that clients make up must not become names of counters.
        info.resource = None;
    }
    let seconds = started.elapsed().as_secs_f64();
    shared
        .metrics
        .finished(&info, response.status().as_u16(), dry_run, seconds);
    response
}

fn unknown(shared: &Shared, info: &RequestInfo) -> bool {
    let Some(path) = &info.resource else { return true };
    let catalogue = shared.catalogue();
    catalogue
        .get(&path.group, &path.version, &path.resource)
        .is_none_or(|resource| !path.subresource.is_empty() && resource.subresource(&path.subresource).is_none())
}

/// Within the limits on requests in flight and on time.
async fn admitted(
    shared: &Arc<Shared>,
    info: &RequestInfo,
    parts: &mut Parts,
    body: Body,
    query: Query,
    accepted: Result<Accepted>,
) -> Result<Response<Body>> {
    if info.long_running() {
        return route(shared, info, parts, body, query, accepted).await;
    }
    let _place = shared.in_flight.enter(info.verb).await?;
    let limit = shared.limits.timeout;
    tokio::time::timeout(limit, route(shared, info, parts, body, query, accepted))
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}

fn timed_out() -> ApiError {
    ApiError::new(
        504,
        "Timeout",
        "Timeout: request did not complete within the allotted timeout",
    )
    .with_details(serde_json::json!({}))
}

async fn route(
    shared: &Arc<Shared>,
    info: &RequestInfo,
    parts: &mut Parts,
    body: Body,
    query: Query,
    accepted: Result<Accepted>,
) -> Result<Response<Body>> {
    let Some(path) = &info.resource else {
        return path_only(shared, info, parts, &query, accepted).await;
    };
    let catalogue = shared.catalogue();
    let Some(resource) = catalogue.get(&path.group, &path.version, &path.resource).cloned() else {
        // A group that is served says so in its own form; elsewhere there is just no page.
        let served = catalogue
            .iter()
            .any(|r| r.group == path.group && r.version == path.version);
        return match served {
            true => Err(ApiError::no_such_path()),
            false => Ok(respond::text(404, "404 page not found\n")),
        };
    };
    check_path(&resource, path, info.verb)?;
    let accepted = accepted.map_err(|error| match resource.origin_is_built_in() {
        true => error,
        // Custom kinds say it in other words.
        false => ApiError::new(406, "NotAcceptable", negotiate::only_accepted()),
    });
    let resource_version = resource.api_version();
    let call = Arc::new(Call {
        shared: shared.clone(),
        catalogue,
        resource,
        api_version: resource_version,
        path: path.clone(),
        verb: info.verb,
        query,
        headers: std::mem::take(&mut parts.headers),
        user: parts.extensions.remove::<User>().unwrap_or_default(),
        upgrade: Mutex::new(parts.extensions.remove()),
        accepted: accepted?,
        now: shared.environment.clock.now(),
        warnings: Mutex::default(),
        annotations: Mutex::default(),
    });
    if let Origin::Custom(kind) = &call.resource.origin
        && let Some(warning) = &kind.deprecation
    {
        call.warn(warning.clone());
    }
    // A patch of no known kind comes no further than the content type.
    let refused = call.verb == "patch" && crate::verbs::patch::applies(&call).is_err();
    if call.resource.origin_is_built_in()
        && !refused
        && let Some(warning) = crate::validation::deprecation(&call.resource)
    {
        call.warn(warning);
    }
    let outcome = match is_several_writes(&call) {
        true => to_its_end(call.clone(), body).await,
        false => verb(&call, body).await,
    };
    let warnings = std::mem::take(&mut *call.warnings.lock());
    let mut response = outcome.unwrap_or_else(|error| respond::error(&error, Some(call.accepted)));
    let annotations = std::mem::take(&mut *call.annotations.lock());
    if !annotations.is_empty() {
        response.extensions_mut().insert(crate::audit::Annotations(annotations));
    }
    for header in warnings.iter().filter_map(|warning| respond::warning_header(warning)) {
        response.headers_mut().append("warning", header);
    }
    Ok(response)
}

/// A path must have the scope of its resource, and a verb that the resource has.
fn check_path(resource: &Resource, path: &ResourcePath, verb: &str) -> Result<()> {
    let in_namespace = !path.namespace.is_empty() && resource.plural != "namespaces";
    if in_namespace && !resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    if resource.namespaced && path.namespace.is_empty() && !path.name.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let verbs = match path.subresource.as_str() {
        "" => &resource.verbs,
        name => {
            let sub = resource
                .subresource(name)
                .ok_or_else(|| match resource.origin_is_built_in() {
                    true => ApiError::no_such_path(),
                    false => ApiError::not_found(&resource.group_resource(), &path.name),
                })?;
            &sub.verbs
        }
    };
    if verb == "update" && path.name.is_empty() && !resource.origin_is_built_in() {
        return Err(ApiError::bad_request("name must be provided"));
    }
    let known = verbs.iter().any(|known| known == verb);
    // A create without a namespace, or a put without a name, is a method that the path does not have.
    let fits = match verb {
        "create" => {
            // A custom kind can also be created at the path of the object itself.
            let place = path.name.is_empty() || !path.subresource.is_empty() || !resource.origin_is_built_in();
            resource.namespaced == in_namespace && place
        }
        "update" | "patch" | "delete" => !path.name.is_empty(),
        "deletecollection" => resource.namespaced == in_namespace,
        _ => true,
    };
    match known && fits {
        true => Ok(()),
        false => Err(ApiError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(serde_json::json!({}))),
    }
}

/// Whether a request is more than one write: a Service takes addresses, which are objects themselves, and a pod that is
/// deleted without grace is marked before it is removed.
fn is_several_writes(call: &Call) -> bool {
    let deletes = matches!(call.verb, "delete" | "deletecollection");
    let writes = deletes || matches!(call.verb, "create" | "update" | "patch");
    let subresource = call.path.subresource.as_str();
    call.resource.group.is_empty()
        && match call.resource.plural.as_str() {
            "services" => writes && matches!(subresource, "" | "status"),
            "pods" => deletes || subresource == "eviction",
            _ => false,
        }
}

/// Goes on when the client has gone: nothing may be left half done, as an address that is taken and belongs to nobody.
async fn to_its_end(call: Arc<Call>, body: Body) -> Result<Response<Body>> {
    match tokio::spawn(async move { verb(&call, body).await }).await {
        Ok(outcome) => outcome,
        Err(error) => Err(ApiError::internal(error)),
    }
}

async fn verb(call: &Arc<Call>, body: Body) -> Result<Response<Body>> {
    if let Some(answer) = crate::kinds::subresource(call, body).await? {
        return Ok(answer);
    }
    Err(ApiError::no_such_path())
}

/// The verbs of an object itself, and of its status.
pub(crate) async fn generic(call: &Arc<Call>, body: Body) -> Result<Response<Body>> {
    match call.verb {
        "get" => get::get(call).await,
        "list" => list::list(call).await,
        "watch" => watch::watch(call.clone()).await,
        "create" => create::create(call, body).await,
        "update" => update::update(call, body).await,
        "patch" => crate::verbs::patch::patch(call, body).await,
        "delete" => delete::delete(call, body).await,
        "deletecollection" => collection::delete_collection(call, body).await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// What is no resource: health, version, discovery, metrics.
async fn path_only(
    shared: &Arc<Shared>,
    info: &RequestInfo,
    parts: &Parts,
    query: &Query,
    accepted: Result<Accepted>,
) -> Result<Response<Body>> {
    if let Some(answer) = health::answer(&info.path, query) {
        return Ok(answer);
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(respond::text(404, "404 page not found\n"));
    }
    match info.path.trim_end_matches('/') {
        "/version" => respond::object(200, &health::version(), plain(accepted)),
        "/metrics" => {
            let page = shared
                .metrics
                .page(shared.environment.clock.now(), shared.store.revision().0);
            let mut response = respond::text(200, page);
            response.headers_mut().insert(
                "content-type",
                HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
            );
            Ok(response)
        }
        path => {
            let host = parts.uri.host().or_else(|| parts.headers.get("host")?.to_str().ok());
            match crate::kinds::access::issuer_document(shared.auth.issuer(), path, host.unwrap_or("localhost")) {
                Some(document) => respond::object(200, &document, plain(accepted)),
                None => described(shared, path, parts),
            }
        }
    }
}

/// Discovery and OpenAPI.
fn described(shared: &Shared, path: &str, parts: &Parts) -> Result<Response<Body>> {
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let published = shared.published();
    let page = published
        .discovery
        .page(path, header("accept"), header("host").unwrap_or_default())
        .or_else(|| published.openapi.page(path, header("accept")));
    let Some(page) = page else {
        return Ok(respond::text(404, "404 page not found\n"));
    };
    let fresh = page.matches(header("if-none-match"));
    let gzip = header("accept-encoding").is_some_and(|accepted| accepted.contains("gzip"));
    let mut response = match fresh {
        true => respond::finish(304, page.content_type, Bytes::new(), false),
        false => respond::finish(200, page.content_type, page.body, gzip),
    };
    if let Ok(tag) = HeaderValue::from_str(&page.etag) {
        response.headers_mut().insert("etag", tag);
    }
    response
        .headers_mut()
        .append("vary", HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Documents that have one form only are sent even to clients that asked for another.
fn plain(accepted: Result<Accepted>) -> Accepted {
    accepted.unwrap_or(Accepted {
        encoding: negotiate::Encoding::Json,
        form: negotiate::Form::AsIs,
        pretty: false,
        gzip: false,
    })
}
