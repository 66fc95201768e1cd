//! `log`, `exec`, `attach`, `portforward` and `proxy`: what a node or a pod answers itself.

mod messages;

use crate::error::{ApiError, Result};
use crate::server::forward::{Target, forward};
use crate::server::query::percent_encode;
use crate::server::{Body, respond};
use crate::store::{Key, ListAt, Prefix, Window};
use crate::verbs::object;
use crate::verbs::watch::websocket;
use crate::verbs::{Call, admit};
use http::{HeaderValue, Method, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

/// Parameters of a log request, which the kubelet knows by the same names.
const LOG_PARAMETERS: [&str; 8] = [
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
];

/// The most that is read of a node's words about a log that it does not give.
const LONGEST_REFUSAL: usize = 50_000;
/// How long a node may take to say them: one that hangs in between must not keep the client.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);

/// What the API calls the streams of a session, and what the kubelet does.
const STREAMS: [(&str, &str); 4] = [
    ("stdin", "input"),
    ("stdout", "output"),
    ("stderr", "error"),
    ("tty", "tty"),
];

pub async fn log(call: &Call) -> Result<Response<Body>> {
    let pod = call.existing().await?.value();
    let container = container(&pod, call.query.text("container"))?;
    for name in ["tailLines", "limitBytes", "sinceSeconds"] {
        call.query.integer(name)?;
    }
    let Some(node) = node_name(&pod) else {
        return Ok(respond::text(200, ""));
    };
    let mut path = format!("/containerLogs/{}/{}/{container}", call.namespace(), call.path.name);
    append(
        &mut path,
        call.query.iter().filter(|(name, _)| LOG_PARAMETERS.contains(name)),
    );
    let messages = messages::Agreed::with(call)?;
    let mut response = to_node(call, &node, path, Method::GET, crate::server::forward::empty()).await?;
    if response.status().is_success() {
        if let Some(messages) = messages {
            return Ok(messages.send(response.into_body()));
        }
        response
            .headers_mut()
            .insert("content-type", HeaderValue::from_static("text/plain"));
        return Ok(response);
    }
    let code = response.status().as_u16();
    Err(refusal(code, words(response.into_body()).await.trim()))
}

/// What a node says instead of a log: as much of it as is read in time. What came until then tells the client more than
/// that the rest did not.
async fn words(mut body: Body) -> String {
    let mut words = Vec::new();
    let read = async {
        while words.len() < LONGEST_REFUSAL
            && let Some(Ok(frame)) = body.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            let room = LONGEST_REFUSAL - words.len();
            words.extend_from_slice(&data[..data.len().min(room)]);
        }
    };
    let _ = tokio::time::timeout(REFUSAL_PATIENCE, read).await;
    String::from_utf8_lossy(&words).into_owned()
}

/// What a node refuses in plain words, as clients understand it.
fn refusal(code: u16, words: &str) -> ApiError {
    match code {
        400 => ApiError::bad_request(words),
        403 => ApiError::new(403, "Forbidden", words),
        404 => ApiError::new(404, "NotFound", words),
        500 => ApiError::internal(words),
        503 => ApiError::new(503, "ServiceUnavailable", words),
        code => ApiError::new(code, "", words),
    }
}

/// `exec`, `attach` and `portforward`.
pub async fn session(call: &Call, body: Body) -> Result<Response<Body>> {
    let pod = call.existing().await?.value();
    let node = node_name(&pod)
        .ok_or_else(|| ApiError::bad_request(format!("pod {} does not have a host assigned", call.path.name)))?;
    admit::connect(call, options(call)).await?;
    let (namespace, name) = (call.namespace(), &call.path.name);
    let mut path = match call.path.subresource.as_str() {
        "portforward" => format!("/portForward/{namespace}/{name}"),
        verb => {
            let container = container(&pod, call.query.text("container"))?;
            format!("/{verb}/{namespace}/{name}/{container}")
        }
    };
    match call.path.subresource.as_str() {
        "portforward" => append(
            &mut path,
            call.query
                .iter()
                .filter(|(name, _)| *name == "ports" || *name == "port"),
        ),
        _ => {
            let streams = STREAMS
                .iter()
                .filter(|(name, _)| call.query.is_true(name))
                .map(|(_, kubelet)| (*kubelet, "1"));
            let command = call.query.all("command").map(|word| ("command", word));
            append(&mut path, streams.chain(command));
        }
    }
    to_node(call, &node, path, method(call), body).await
}

/// What a connection is for, as admission sees it.
fn options(call: &Call) -> Value {
    let flag = |name: &str| call.query.is_true(name);
    let words = |name: &str| call.query.all(name).map(str::to_string).collect::<Vec<_>>();
    let kind = match (call.path.subresource.as_str(), call.resource.plural.as_str()) {
        ("portforward", _) => {
            let ports: Vec<i64> = words("ports").iter().filter_map(|port| port.parse().ok()).collect();
            return json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": ports});
        }
        ("exec", _) => "PodExecOptions",
        ("attach", _) => "PodAttachOptions",
        (_, "nodes") => "NodeProxyOptions",
        (_, "services") => "ServiceProxyOptions",
        _ => "PodProxyOptions",
    };
    if kind.ends_with("ProxyOptions") {
        return json!({"kind": kind, "apiVersion": "v1", "path": format!("/{}", call.path.rest)});
    }
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for (name, _) in STREAMS.iter().filter(|(name, _)| flag(name)) {
        options[*name] = true.into();
    }
    let container = call.query.text("container");
    if !container.is_empty() {
        options["container"] = container.into();
    }
    if kind == "PodExecOptions" {
        options["command"] = words("command").into();
    }
    options
}

/// `proxy` of nodes, pods and services.
pub async fn proxy(call: &Call, body: Body) -> Result<Response<Body>> {
    admit::connect(call, options(call)).await?;
    let mut path = format!("/{}", call.path.rest);
    append(&mut path, call.query.iter());
    // Names may carry a scheme and a port: `https:web:443`.
    let parts: Vec<&str> = call.path.name.split(':').collect();
    let (name, port) = match parts.as_slice() {
        [name] => (*name, ""),
        [name, port] => (*name, *port),
        [_, name, port] => (*name, *port),
        _ => {
            return Err(ApiError::bad_request(format!(
                "invalid {} request {:?}",
                call.resource.singular, call.path.name
            )));
        }
    };
    let (host, port) = match call.resource.plural.as_str() {
        "nodes" => return to_node(call, name, path, method(call), body).await,
        "services" => endpoint(call, name, port).await?,
        _ => {
            let pod = call
                .find(name)
                .await?
                .ok_or_else(|| ApiError::not_found(&call.group_resource(), name))?;
            let pod = pod.value();
            let address = pod["status"]["podIP"].as_str().unwrap_or_default().to_string();
            if address.is_empty() {
                return Err(ApiError::bad_request("address not allowed"));
            }
            (address, pod_port(&pod, port)?)
        }
    };
    let target = Target {
        host,
        port,
        path,
        tls: None,
        wires: call.shared.wires.clone(),
    };
    let upgrade = call.upgrade.lock().take();
    forward(target, method(call), &call.headers, body, upgrade).await
}

fn method(call: &Call) -> Method {
    match call.verb {
        "create" => Method::POST,
        "update" => Method::PUT,
        "patch" => Method::PATCH,
        "delete" => Method::DELETE,
        _ => Method::GET,
    }
}

fn node_name(pod: &Value) -> Option<String> {
    pod["spec"]["nodeName"]
        .as_str()
        .filter(|name| !name.is_empty())
        .map(str::to_string)
}

/// The container that is meant; only a pod of one container can leave it unsaid.
fn container(pod: &Value, wanted: &str) -> Result<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers
            .map(|container| container["name"].as_str().unwrap_or_default().to_string())
            .collect()
    };
    let (main, init, ephemeral) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    let name = object::name(pod);
    if wanted.is_empty() {
        return match main.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}"
            ))),
            many => {
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    many.join(" ")
                );
                if !init.is_empty() {
                    message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
                }
                if !ephemeral.is_empty() {
                    message.push_str(&format!(
                        " or one of the ephemeral containers: [{}]",
                        ephemeral.join(" ")
                    ));
                }
                Err(ApiError::bad_request(message))
            }
        };
    }
    match [main, init, ephemeral].concat().iter().any(|known| known == wanted) {
        true => Ok(wanted.to_string()),
        false => Err(ApiError::bad_request(format!(
            "container {wanted} is not valid for pod {name}"
        ))),
    }
}

fn pod_port(pod: &Value, port: &str) -> Result<u16> {
    if port.is_empty() {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let first = ports.find_map(|port| port["containerPort"].as_u64());
        return Ok(first.and_then(|port| u16::try_from(port).ok()).unwrap_or(80));
    }
    port.parse()
        .map_err(|_| ApiError::bad_request(format!("invalid pod request {port:?}")))
}

/// An address behind a service.
async fn endpoint(call: &Call, name: &str, port: &str) -> Result<(String, u16)> {
    let unavailable = || {
        ApiError::new(
            503,
            "ServiceUnavailable",
            format!("no endpoints available for service {name:?}"),
        )
    };
    let service = call
        .find(name)
        .await?
        .ok_or_else(|| ApiError::not_found(&call.group_resource(), name))?;
    let service = service.value();
    let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let wanted = ports.iter().find(|known| match port {
        "" => true,
        port => known["name"] == port || port.parse::<u64>().is_ok_and(|port| known["port"] == port),
    });
    let port_name = wanted.ok_or_else(unavailable)?["name"]
        .as_str()
        .unwrap_or_default()
        .to_string();
    let prefix = Prefix::namespace("discovery.k8s.io/endpointslices", call.namespace());
    let page = call.shared.store.list(&prefix, ListAt::Any, Window::default()).await;
    let mut ready = Vec::new();
    for record in page.map_err(|error| call.store_error(error, name))?.records {
        let slice = record.value();
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        let ports = slice["ports"].as_array().into_iter().flatten();
        let port = ports
            .filter(|known| known["name"].as_str().unwrap_or_default() == port_name)
            .find_map(|known| u16::try_from(known["port"].as_u64()?).ok());
        let Some(port) = port else { continue };
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let endpoints = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false);
        let addresses = endpoints.filter_map(|endpoint| endpoint["addresses"][0].as_str());
        ready.extend(addresses.map(|address| (address.to_string(), port)));
    }
    // Any of them, as Kubernetes does it: whoever asks through here must not see one pod alone.
    match ready.is_empty() {
        true => Err(unavailable()),
        false => Ok(ready.swap_remove(call.shared.environment.below(ready.len()))),
    }
}

/// Sends a request to the kubelet of a node.
async fn to_node(call: &Call, node: &str, path: String, method: Method, body: Body) -> Result<Response<Body>> {
    let key = Key::new("/nodes", "", node);
    let found = call
        .shared
        .store
        .get(&key)
        .await
        .map_err(|error| call.store_error(error, node))?;
    let record = found.ok_or_else(|| {
        let nodes = crate::error::GroupResource {
            group: String::new(),
            resource: "nodes".to_string(),
        };
        ApiError::not_found(&nodes, node)
    })?;
    let value = record.value();
    let host =
        address(&value).ok_or_else(|| ApiError::internal("no preferred addresses found; known addresses: []"))?;
    let target = Target {
        host,
        port: port(&value).unwrap_or(10250),
        path,
        tls: call.shared.kubelet.clone(),
        wires: call.shared.wires.clone(),
    };
    let upgrade = call.upgrade.lock().take();
    if upgrade.is_none() && websocket::is_requested(&call.headers) {
        // The client's messages are made here: the node is asked for a plain answer.
        let mut plain = call.headers.clone();
        plain.remove(http::header::CONNECTION);
        plain.remove(http::header::UPGRADE);
        return forward(target, method, &plain, body, None).await;
    }
    forward(target, method, &call.headers, body, upgrade).await
}

/// Where a node's kubelet listens, if the node says so.
pub(super) fn kubelet(node: &Value) -> Option<(String, u16)> {
    Some((address(node)?, port(node)?))
}

fn address(node: &Value) -> Option<String> {
    let addresses = node["status"]["addresses"].as_array()?;
    // Names of nodes rarely resolve where the server runs, so addresses come first.
    let kinds = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS"];
    kinds.iter().find_map(|kind| {
        let found = addresses.iter().find(|address| address["type"] == *kind)?;
        found["address"].as_str().map(str::to_string)
    })
}

fn port(node: &Value) -> Option<u16> {
    // A node without a kubelet is stored with the port 0, which Go's types write for none.
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .filter(|port| *port > 0);
    port.and_then(|port| u16::try_from(port).ok())
}

/// Appends a query to a path.
fn append<'a>(path: &mut String, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    for (index, (name, value)) in pairs.enumerate() {
        path.push(if index == 0 { '?' } else { '&' });
        path.push_str(&percent_encode(name));
        path.push('=');
        path.push_str(&percent_encode(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::query::Query;
    use serde_json::json;

    #[test]
    fn a_pod_of_many_containers_must_be_told_which() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        assert_eq!(
            container(&pod, "").unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(container(&pod, "i").unwrap(), "i");
        assert_eq!(
            container(&pod, "x").unwrap_err().message,
            "container x is not valid for pod p"
        );
    }

    #[test]
    fn the_words_of_a_node_become_a_status() {
        let words = "container \"a\" in pod \"p\" is waiting to start: ContainerCreating";
        let refused = refusal(400, words);
        assert_eq!(
            (refused.code, refused.reason, refused.message.as_str()),
            (400, "BadRequest", words)
        );
        assert_eq!(refusal(404, "gone").reason, "NotFound");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_talks_for_ever_or_stops_in_between_is_heard_as_far_as_it_got() {
        use futures::StreamExt;
        let hanging = futures::stream::iter([bytes::Bytes::from("not here")]).chain(futures::stream::pending());
        assert_eq!(words(crate::server::body::stream(hanging)).await, "not here");
        let endless = futures::stream::repeat(bytes::Bytes::from(vec![b'x'; 1 << 20]));
        assert_eq!(words(crate::server::body::stream(endless)).await.len(), LONGEST_REFUSAL);
    }

    #[test]
    fn commands_keep_their_spaces() {
        let query = Query::parse("command=echo&command=a%20b%26c");
        let mut path = "/exec".to_string();
        append(&mut path, query.all("command").map(|word| ("command", word)));
        assert_eq!(path, "/exec?command=echo&command=a%20b%26c");
    }
}
