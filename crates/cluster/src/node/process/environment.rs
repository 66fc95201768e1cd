//! A container's environment variables and command line, from what the pod's spec says about them.
//!
//! Reading what the spec refers to and working it out are apart: `Sources` is filled by requests, the rest is
//! computed.

use crate::node::runtime::RuntimeError;
use crate::node::shape::{Shape, Whole};
use k8s_openapi::api::core::v1::{ConfigMap, EnvVarSource, Secret, Service};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The path of a container whose image sets none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the pod's environment may refer to. A name without an object was asked for and is not there.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
    pub services: Vec<Arc<Service>>,
    pub addresses: Vec<IpAddr>,
    pub host: Option<IpAddr>,
    /// What `limits` without a limit means: the node's own.
    pub cpus: u64,
    pub memory_bytes: u64,
}

fn missing(message: String) -> RuntimeError {
    RuntimeError::Configuration {
        reason: "CreateContainerConfigError",
        message,
    }
}

/// Works the variables out, in the order in which later ones may use earlier ones.
pub fn variables(
    shape: &Shape<'_>,
    container: &Whole,
    sources: &Sources,
) -> Result<Vec<(String, String)>, RuntimeError> {
    let mut set: BTreeMap<String, String> = BTreeMap::new();
    let hostname = shape.spec.hostname.clone().unwrap_or_else(|| shape.name().to_owned());
    set.insert("PATH".to_owned(), PATH.to_owned());
    set.insert("HOSTNAME".to_owned(), hostname);
    set.insert("HOME".to_owned(), "/root".to_owned());
    set.extend(service_variables(shape, &sources.services));
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match sources.config_maps.get(&reference.name) {
                Some(map) => set.extend(
                    map.data
                        .iter()
                        .flatten()
                        .map(|(key, value)| (format!("{prefix}{key}"), value.clone())),
                ),
                None if reference.optional == Some(true) => {}
                None => return Err(missing(format!("configmap \"{}\" not found", reference.name))),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.secrets.get(&reference.name) {
                Some(secret) => {
                    set.extend(
                        secret.data.iter().flatten().map(|(key, value)| {
                            (format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned())
                        }),
                    )
                }
                None if reference.optional == Some(true) => {}
                None => return Err(missing(format!("secret \"{}\" not found", reference.name))),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &set)),
            Some(source) => referred(shape, container, source, sources)?,
        };
        if let Some(value) = value {
            set.insert(variable.name.clone(), value);
        }
    }
    Ok(set.into_iter().collect())
}

fn referred(
    shape: &Shape<'_>,
    container: &Whole,
    source: &EnvVarSource,
    sources: &Sources,
) -> Result<Option<String>, RuntimeError> {
    if let Some(reference) = &source.config_map_key_ref {
        let map = sources.config_maps.get(&reference.name);
        let value = map.and_then(|map| map.data.as_ref()?.get(&reference.key).cloned());
        return match (value, map) {
            (Some(value), _) => Ok(Some(value)),
            _ if reference.optional == Some(true) => Ok(None),
            (None, None) => Err(missing(format!("configmap \"{}\" not found", reference.name))),
            (None, Some(_)) => Err(missing(format!(
                "couldn't find key {} in ConfigMap {}/{}",
                reference.key,
                shape.namespace(),
                reference.name
            ))),
        };
    }
    if let Some(reference) = &source.secret_key_ref {
        let secret = sources.secrets.get(&reference.name);
        let value = secret.and_then(|secret| secret.data.as_ref()?.get(&reference.key));
        return match (value, secret) {
            (Some(value), _) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            _ if reference.optional == Some(true) => Ok(None),
            (None, None) => Err(missing(format!("secret \"{}\" not found", reference.name))),
            (None, Some(_)) => Err(missing(format!(
                "couldn't find key {} in Secret {}/{}",
                reference.key,
                shape.namespace(),
                reference.name
            ))),
        };
    }
    if let Some(reference) = &source.field_ref {
        return Ok(Some(field(shape, &reference.field_path, sources).unwrap_or_default()));
    }
    if let Some(reference) = &source.resource_field_ref {
        let named = reference.container_name.as_deref().filter(|name| !name.is_empty());
        let other = named.and_then(|name| shape.find(name));
        let container = other.as_deref().unwrap_or(container);
        let divisor = reference.divisor.as_ref().map(|divisor| divisor.0.as_str());
        return Ok(Some(resource(container, &reference.resource, divisor, sources)));
    }
    Ok(None)
}

/// A field of the pod, as the downward API gives it.
pub fn field(shape: &Shape<'_>, path: &str, sources: &Sources) -> Option<String> {
    let keyed = |prefix: &str, map: &Option<BTreeMap<String, String>>| {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        map.as_ref()?.get(key).cloned()
    };
    let lines = |map: &Option<BTreeMap<String, String>>| {
        let lines: Vec<String> = map
            .iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        lines.join("\n")
    };
    let joined = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let metadata = &shape.pod.metadata;
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => Some(lines(&metadata.labels)),
        "metadata.annotations" => Some(lines(&metadata.annotations)),
        "spec.nodeName" => shape.spec.node_name.clone(),
        "spec.serviceAccountName" => shape.spec.service_account_name.clone(),
        "status.hostIP" | "status.hostIPs" => sources.host.map(|host| host.to_string()),
        "status.podIP" => sources.addresses.first().map(ToString::to_string),
        "status.podIPs" => Some(joined(&sources.addresses)),
        _ => {
            keyed("metadata.labels", &metadata.labels).or_else(|| keyed("metadata.annotations", &metadata.annotations))
        }
    }
}

/// A request or limit of a container in units of `divisor`, rounded up.
pub fn resource(container: &Whole, name: &str, divisor: Option<&str>, sources: &Sources) -> String {
    use stead_machinery::quantity::Quantity;
    let parse = |text: &str| text.parse::<Quantity>().ok().map(|quantity| quantity.as_f64());
    let (kind, resource) = name.split_once('.').unwrap_or(("limits", name));
    let resources = container.resources.as_ref();
    let map = match kind {
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => resources.and_then(|resources| resources.limits.as_ref()),
    };
    let whole = match resource {
        "cpu" => sources.cpus as f64,
        "memory" => sources.memory_bytes as f64,
        _ => 0.0,
    };
    let default = if kind == "limits" { whole } else { 0.0 };
    let amount = map.and_then(|map| parse(&map.get(resource)?.0)).unwrap_or(default);
    let divisor = divisor.and_then(parse).filter(|divisor| *divisor > 0.0).unwrap_or(1.0);
    format!("{:.0}", (amount / divisor).ceil())
}

/// The variables about Services that every container gets: the API server's always, the namespace's others unless
/// the pod declines them.
fn service_variables(shape: &Shape<'_>, services: &[Arc<Service>]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for service in services {
        let (name, namespace) = (service.metadata.name.as_deref(), service.metadata.namespace.as_deref());
        let api = name == Some("kubernetes") && namespace == Some("default");
        let wanted = api || (namespace == Some(shape.namespace()) && shape.spec.enable_service_links != Some(false));
        let Some((name, spec)) = name.zip(service.spec.as_ref()).filter(|_| wanted) else {
            continue;
        };
        let Some(address) = spec
            .cluster_ip
            .as_deref()
            .filter(|address| !address.is_empty() && *address != "None")
        else {
            continue;
        };
        let upper = name.to_uppercase().replace('-', "_");
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first() else { continue };
        variables.push((format!("{upper}_SERVICE_HOST"), address.to_owned()));
        variables.push((format!("{upper}_SERVICE_PORT"), first.port.to_string()));
        variables.push((format!("{upper}_PORT"), format!("tcp://{address}:{}", first.port)));
        for port in ports {
            let number = port.port;
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let lower = protocol.to_lowercase();
            if let Some(name) = &port.name {
                let name = name.to_uppercase().replace('-', "_");
                variables.push((format!("{upper}_SERVICE_PORT_{name}"), number.to_string()));
            }
            let prefix = format!("{upper}_PORT_{number}_{protocol}");
            variables.push((prefix.clone(), format!("{lower}://{address}:{number}")));
            variables.push((format!("{prefix}_PROTO"), lower));
            variables.push((format!("{prefix}_PORT"), number.to_string()));
            variables.push((format!("{prefix}_ADDR"), address.to_owned()));
        }
    }
    variables
}

/// Replaces `$(NAME)` by the variable's value; `$$(NAME)` stands for itself, and so does an unknown name.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        result.push_str(&rest[..start]);
        rest = &rest[start..];
        if let Some(after) = rest.strip_prefix("$$") {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => result.push_str(value),
                None => result.push_str(&rest[..rest.len() - after.len()]),
            }
            rest = after;
        } else {
            result.push('$');
            rest = &rest[1..];
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_expanded_and_doubled_dollars_are_kept() {
        let variables = BTreeMap::from([("A".to_owned(), "x".to_owned())]);
        assert_eq!(expand("$(A)-$(B)-$$(A)-$A-$", &variables), "x-$(B)-$(A)-$A-$");
    }

    #[test]
    fn variables_come_from_maps_fields_and_resources() {
        let pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "labels": { "app": "web" } },
            "spec": { "containers": [{
                "name": "c",
                "resources": { "limits": { "memory": "64Mi" }, "requests": { "cpu": "250m" } },
                "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "m" } }],
                "env": [
                    { "name": "A", "value": "1" },
                    { "name": "B", "value": "$(A)2" },
                    { "name": "L", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['app']" } } },
                    { "name": "M", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } } },
                    { "name": "C", "valueFrom": { "resourceFieldRef": { "resource": "requests.cpu", "divisor": "1m" } } },
                ],
            }] },
        }))
        .unwrap();
        let shape = Shape::of(&pod);
        let mut sources = Sources::default();
        let container = shape.containers().next().unwrap();
        let error = variables(&shape, container, &sources).unwrap_err();
        assert_eq!(
            (error.reason(), error.to_string().as_str()),
            ("CreateContainerConfigError", "configmap \"m\" not found")
        );
        let map = serde_json::from_value(json!({ "data": { "k": "v" } })).unwrap();
        sources.config_maps.insert("m".to_owned(), map);
        let found: BTreeMap<String, String> = variables(&shape, container, &sources).unwrap().into_iter().collect();
        for (name, value) in [("P_k", "v"), ("B", "12"), ("L", "web"), ("M", "64"), ("C", "250")] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
}
