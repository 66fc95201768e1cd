//! Defaults of pods and of everything inside them.

use super::{Defaulter, Fields, each, is_unset, set, text};
use serde_json::{Value, json};

pub const TYPES: &[(&str, Defaulter)] = &[
    ("api.core.v1.Pod", pod),
    ("api.core.v1.PodSpec", pod_spec),
    ("api.core.v1.PodStatus", pod_status),
    ("api.core.v1.Container", container),
    ("api.core.v1.EphemeralContainer", container),
    ("api.core.v1.Volume", volume),
    ("api.core.v1.Probe", probe),
    ("api.core.v1.HTTPGetAction", http_get),
    ("api.core.v1.GRPCAction", grpc),
    ("api.core.v1.ObjectFieldSelector", object_field),
    ("api.core.v1.SecretVolumeSource", default_mode),
    ("api.core.v1.ConfigMapVolumeSource", default_mode),
    ("api.core.v1.DownwardAPIVolumeSource", default_mode),
    ("api.core.v1.ProjectedVolumeSource", default_mode),
    ("api.core.v1.ServiceAccountTokenProjection", token),
    ("api.core.v1.HostPathVolumeSource", host_path),
];

/// 0644, in the decimal that JSON needs.
const READABLE: i64 = 0o644;

fn pod(pod: &mut Fields) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            requests_from_limits(container);
        }
    }
    set(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in each(spec, list) {
                for port in each(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or(json!(0));
                    set(port, "hostPort", number);
                }
            }
        }
    }
}

/// The address of a pod is the first of its addresses.
fn pod_status(status: &mut Fields) {
    let ip = text(status, "podIP").to_string();
    let listed = status
        .get("podIPs")
        .and_then(|ips| ips[0]["ip"].as_str())
        .unwrap_or_default();
    if ip.is_empty() && !listed.is_empty() {
        let listed = Value::from(listed);
        status.insert("podIP".to_string(), listed);
    } else if !ip.is_empty() && listed != ip {
        status.insert("podIPs".to_string(), json!([{"ip": ip}]));
    }
}

/// What is limited and not requested is requested in full.
fn requests_from_limits(container: &mut Fields) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if let Some(requests) = super::child(resources, "requests") {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn pod_spec(spec: &mut Fields) {
    // The older name of the account goes along with the newer one.
    match (
        text(spec, "serviceAccountName").to_string(),
        text(spec, "serviceAccount").to_string(),
    ) {
        (name, old) if name.is_empty() && !old.is_empty() => {
            spec.insert("serviceAccountName".to_string(), old.into());
        }
        (name, _) if !name.is_empty() => {
            spec.insert("serviceAccount".to_string(), name.into());
        }
        _ => {}
    }
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "securityContext", json!({}));
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "schedulerName", "default-scheduler");
}

fn container(container: &mut Fields) {
    let policy = pull_policy(text(container, "image"));
    set(container, "imagePullPolicy", policy);
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
}

/// An image that may change under its name is always pulled.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    let latest = match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && is_image_name(name),
    };
    if latest { "Always" } else { "IfNotPresent" }
}

/// Kubernetes takes a name that it cannot parse for one without a tag, and not for the latest.
fn is_image_name(name: &str) -> bool {
    let path = name.split_once('/').map_or(name, |(_, path)| path);
    !name.is_empty() && !path.chars().any(|c| c.is_ascii_uppercase() || c.is_whitespace())
}

fn volume(volume: &mut Fields) {
    if !volume.iter().any(|(name, source)| name != "name" && !source.is_null()) {
        volume.insert("emptyDir".into(), json!({}));
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
        let policy = pull_policy(text(image, "reference"));
        set(image, "pullPolicy", policy);
    }
}

fn probe(probe: &mut Fields) {
    for (name, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        set(probe, name, value);
    }
}

fn http_get(action: &mut Fields) {
    set(action, "path", "/");
    set(action, "scheme", "HTTP");
}

fn grpc(action: &mut Fields) {
    if is_unset(action, "service") {
        action.insert("service".into(), "".into());
    }
}

fn object_field(selector: &mut Fields) {
    set(selector, "apiVersion", "v1");
}

fn default_mode(source: &mut Fields) {
    set(source, "defaultMode", READABLE);
}

fn token(projection: &mut Fields) {
    set(projection, "expirationSeconds", 3600);
}

fn host_path(source: &mut Fields) {
    if is_unset(source, "type") {
        source.insert("type".into(), "".into());
    }
}
