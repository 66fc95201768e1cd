//! What is wrong with a WebApp beyond its schema, and what is doubtful.
//!
//! The webhook answers with it, and the operator checks again before it acts: a cluster may have no webhook.

mod references;

use super::autopilot::NEVER_ASLEEP;
use super::container::LISTENED_TWICE;
use super::exposure::NOT_A_HOST;
use super::strategy::NOT_RISING;
use super::{WebAppSpec, Window};
use crate::image::ImageReference;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use stead_machinery::cron::Schedule;
use stead_machinery::field::FieldError;
use stead_machinery::names;

/// Names that the operator gives to volumes of its own.
pub const FILES_VOLUME: &str = "stead-files";
/// The name of the application's own container.
pub const CONTAINER: &str = "app";
/// Labels and annotations of pods that begin so are the operator's.
const OURS: &str = "stead.dev/";
/// Labels by which the operator knows an application's pods.
const IDENTITY: &[&str] = &["app.kubernetes.io/name", "app.kubernetes.io/instance"];
/// All files are in one ConfigMap, and an object holds a mebibyte; the rest of it needs some room.
const MOST_FILE_BYTES: usize = 1_000_000;

/// Every mistake in the spec.
pub fn errors(spec: &WebAppSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    if let Err(error) = spec.image.parse::<ImageReference>() {
        found.push(FieldError::invalid(
            "spec.image",
            spec.image.as_str(),
            error.to_string(),
        ));
    }
    if !(0..=super::MOST_REPLICAS).contains(&spec.replicas) {
        let detail = format!("must be between 0 and {}", super::MOST_REPLICAS);
        found.push(FieldError::invalid("spec.replicas", spec.replicas, detail));
    }
    found.extend(repeated(
        "spec.ports",
        "name",
        spec.ports.iter().map(|port| port.name.as_str()),
    ));
    found.extend(repeated(
        "spec.files",
        "path",
        spec.files.iter().map(|file| file.path.as_str()),
    ));
    found.extend(repeated(
        "spec.env",
        "name",
        spec.env.iter().map(|variable| variable.name.as_str()),
    ));
    found.extend(ports(spec));
    found.extend(containers(spec));
    found.extend(volumes(spec));
    found.extend(references::errors(spec));
    found.extend(route(spec));
    found.extend(
        spec.sleep
            .iter()
            .enumerate()
            .flat_map(|(index, times)| window(index, times)),
    );
    found.extend(steps(spec));
    found.extend(labels("spec.podLabels", &spec.pod_labels));
    found.extend(labels("spec.nodeSelector", &spec.node_selector));
    found.extend(reserved("spec.podLabels", spec.pod_labels.keys()));
    found.extend(reserved("spec.podAnnotations", spec.pod_annotations.keys()));
    for name in spec.pod_annotations.keys() {
        let problems = names::qualified_name(&name.to_lowercase());
        found.extend(
            problems
                .iter()
                .map(|why| FieldError::invalid("spec.podAnnotations", name.as_str(), why.as_str())),
        );
    }
    if spec.ingress.is_some() && spec.route.is_some() {
        found.push(FieldError::forbidden(
            "spec.route",
            "ingress and route are two ways to the same end: keep one of them",
        ));
    }
    if let Some(scaling) = spec
        .autoscaling
        .as_ref()
        .filter(|scaling| scaling.min_replicas > scaling.max_replicas)
    {
        let detail = "must not be greater than maxReplicas";
        found.push(FieldError::invalid(
            "spec.autoscaling.minReplicas",
            scaling.min_replicas,
            detail,
        ));
    }
    found
}

/// What is allowed and likely to be regretted.
pub fn warnings(spec: &WebAppSpec) -> Vec<String> {
    let mut found = Vec::new();
    if spec
        .image
        .parse::<ImageReference>()
        .is_ok_and(|image| image.is_moving())
    {
        let image = &spec.image;
        found.push(format!(
            "spec.image: {image} may be another program tomorrow; name a version or a digest"
        ));
    }
    for name in IDENTITY.iter().filter(|name| spec.pod_labels.contains_key(**name)) {
        found.push(format!(
            "spec.podLabels: {name} is how Stead knows the pods; yours has no effect"
        ));
    }
    if spec.replicas == 1 && spec.disruption.is_some() {
        found.push("spec.disruption: with one replica it blocks every drain of its node".to_string());
    }
    found
}

/// Ports that the Service could not tell apart, and one that nobody listens on.
fn ports(spec: &WebAppSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut listened = BTreeSet::new();
    for (index, port) in spec.ports.iter().enumerate() {
        if !listened.insert((port.container_port, format!("{:?}", port.protocol))) {
            let field = format!("spec.ports[{index}].containerPort");
            found.push(FieldError::invalid(field, port.container_port, LISTENED_TWICE));
            // The same mistake shows once: what is written twice is offered twice as well.
            continue;
        }
        let number = port.offered_as(index);
        if !seen.insert((number, format!("{:?}", port.protocol))) {
            let field = format!("spec.ports[{index}].servicePort");
            let detail = "the Service offers another port under this number; give each its own";
            found.push(FieldError::invalid(field, number, detail));
        }
    }
    let measured = spec
        .monitoring
        .as_ref()
        .and_then(|monitoring| monitoring.port.as_deref());
    let known = |name: &str| match spec.ports.is_empty() {
        true => name == "http",
        false => spec.ports.iter().any(|port| port.name == name),
    };
    if let Some(name) = measured.filter(|name| !known(name)) {
        let detail = "no port has this name; use one of spec.ports";
        found.push(FieldError::invalid("spec.monitoring.port", name, detail));
    }
    found
}

/// Containers of one pod have a name each.
fn containers(spec: &WebAppSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([CONTAINER]);
    let all = [("initContainers", &spec.init_containers), ("sidecars", &spec.sidecars)];
    for (list, containers) in all {
        for (index, container) in containers.iter().enumerate() {
            if !seen.insert(container.name.as_str()) {
                let field = format!("spec.{list}[{index}].name");
                let detail = match container.name == CONTAINER {
                    true => "this name is the application's own container; use another",
                    false => "another container has this name; use another",
                };
                found.push(FieldError::invalid(field, container.name.as_str(), detail));
            }
        }
    }
    found
}

/// Volumes that are there twice, that are ours, or that are mounted and not there.
fn volumes(spec: &WebAppSpec) -> Vec<FieldError> {
    let names = || spec.volumes.iter().map(|volume| volume.name.as_str());
    let mut found = repeated("spec.volumes", "name", names());
    if let Some(index) = names().position(|name| name == FILES_VOLUME) {
        let field = format!("spec.volumes[{index}].name");
        found.push(FieldError::invalid(
            field,
            FILES_VOLUME,
            "this name holds spec.files; use another",
        ));
    }
    for (index, mount) in spec.volume_mounts.iter().enumerate() {
        if names().all(|name| name != mount.name) {
            let field = format!("spec.volumeMounts[{index}].name");
            let detail = "no volume has this name; add it to spec.volumes";
            found.push(FieldError::invalid(field, mount.name.as_str(), detail));
        }
    }
    let size: usize = spec.files.iter().map(|file| file.content.len()).sum();
    if size > MOST_FILE_BYTES {
        let detail = format!("all files together must not be longer than {MOST_FILE_BYTES} bytes; use a volume");
        found.push(FieldError::invalid("spec.files", size as u64, detail));
    }
    found
}

/// Whether a name is none that anybody could be reached under.
fn is_no_host(host: &str) -> bool {
    let bare = host.strip_prefix("*.").unwrap_or(host);
    bare.parse::<std::net::IpAddr>().is_ok() || !names::dns1123_subdomain(bare).is_empty()
}

/// A way in that no Ingress controller or Gateway could make.
fn route(spec: &WebAppSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    if let Some(ingress) = spec.ingress.as_ref().filter(|ingress| is_no_host(&ingress.host)) {
        found.push(FieldError::invalid(
            "spec.ingress.host",
            ingress.host.as_str(),
            NOT_A_HOST,
        ));
    }
    let Some(route) = &spec.route else { return found };
    if !route.path.starts_with('/') {
        let path = route.path.as_str();
        found.push(FieldError::invalid("spec.route.path", path, "a path begins with /"));
    }
    for (index, host) in route.hostnames.iter().enumerate() {
        if is_no_host(host) {
            let field = format!("spec.route.hostnames[{index}]");
            found.push(FieldError::invalid(field, host.as_str(), NOT_A_HOST));
        }
    }
    found
}

/// A sleeping time that cannot be read would be one that is never kept.
fn window(index: usize, window: &Window) -> Vec<FieldError> {
    let mut found = Vec::new();
    for (name, text) in [("from", &window.from), ("until", &window.until)] {
        if let Err(error) = text.parse::<Schedule>() {
            let field = format!("spec.sleep[{index}].{name}");
            found.push(FieldError::invalid(field, text.as_str(), error.to_string()));
        }
    }
    let [from, until] = [&window.from, &window.until].map(|text| text.parse::<Schedule>());
    if from.is_ok() && from == until {
        let field = format!("spec.sleep[{index}].until");
        found.push(FieldError::invalid(field, window.until.as_str(), NEVER_ASLEEP));
    }
    if TimeZone::get(&window.time_zone).is_err() {
        let field = format!("spec.sleep[{index}].timeZone");
        let detail = "not a known time zone; use a name such as Europe/Berlin";
        found.push(FieldError::invalid(field, window.time_zone.as_str(), detail));
    }
    found
}

/// A step with no more pods than the one before would take the new version back, or do nothing.
fn steps(spec: &WebAppSpec) -> Vec<FieldError> {
    let steps = spec.strategy.canary.iter().flat_map(|canary| canary.steps.windows(2));
    let falling = steps.enumerate().filter_map(|(index, pair)| match pair {
        [before, step] if step.percent <= before.percent => Some((index + 1, step.percent)),
        _ => None,
    });
    falling
        .map(|(index, percent)| {
            let field = format!("spec.strategy.canary.steps[{index}].percent");
            FieldError::invalid(field, percent, NOT_RISING)
        })
        .collect()
}

/// Names that the operator gives itself: what a user writes there would be taken for the operator's word.
fn reserved<'a>(field: &str, names: impl Iterator<Item = &'a String>) -> Vec<FieldError> {
    names
        .filter(|name| name.starts_with(OURS))
        .map(|name| FieldError::invalid(field, name.as_str(), "names that begin with stead.dev/ are Stead's own"))
        .collect()
}

/// Labels that Kubernetes would refuse on the pods, told where they are written.
fn labels(field: &str, labels: &BTreeMap<String, String>) -> Vec<FieldError> {
    let invalid = |value: &str, why: &String| FieldError::invalid(field, value, why.as_str());
    let mut found = Vec::new();
    for (name, value) in labels {
        found.extend(names::qualified_name(name).iter().map(|why| invalid(name, why)));
        found.extend(names::label_value(value).iter().map(|why| invalid(value, why)));
    }
    found
}

fn repeated<'a>(field: &str, key: &str, names: impl Iterator<Item = &'a str>) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    names
        .enumerate()
        .filter(|(_, name)| !seen.insert(*name))
        .map(|(index, name)| FieldError::duplicate(format!("{field}[{index}].{key}"), name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mistakes(extra: serde_json::Value) -> Vec<String> {
        let mut spec = json!({"image": "nginx:1.25"});
        for (name, value) in extra.as_object().expect("an object") {
            spec[name] = value.clone();
        }
        let spec = serde_json::from_value(spec).expect("a spec");
        errors(&spec).iter().map(ToString::to_string).collect()
    }

    /// The only mistake of a spec, by how it begins.
    fn check(extra: serde_json::Value, begins: &str) {
        let found = mistakes(extra);
        assert!(
            found.len() == 1 && found[0].starts_with(begins),
            "{found:?} instead of {begins}"
        );
    }

    #[test]
    fn a_sleeping_time_that_cannot_be_read_is_refused() {
        check(
            json!({"sleep": [{"from": "0 20 * * BAD", "until": "0 6 * * *"}]}),
            "spec.sleep[0].from: Invalid value: \"0 20 * * BAD\": day of week:",
        );
        check(
            json!({"sleep": [{"from": "0 20 * * *", "until": "0 6 * * *", "timeZone": "Europe/Atlantis"}]}),
            "spec.sleep[0].timeZone: Invalid value: \"Europe/Atlantis\": not a known time zone",
        );
        check(
            json!({"sleep": [{"from": "0 20 * * *", "until": "0  20 * * 0-7"}]}),
            "spec.sleep[0].until: Invalid value: \"0  20 * * 0-7\": must be another time than from",
        );
        let berlin = json!({"sleep": [{"from": "0 20 * * *", "until": "0 6 * * *", "timeZone": "Europe/Berlin"}]});
        assert!(mistakes(berlin).is_empty());
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused_where_it_is_written() {
        let port = |name: &str, port: i32| json!({"name": name, "containerPort": port});
        check(
            json!({"ports": [port("web", 8080), port("admin", 80)]}),
            "spec.ports[1].servicePort: Invalid value: 80: the Service offers another port",
        );
        check(
            json!({"ports": [port("web", 8080), port("admin", 8080)]}),
            "spec.ports[1].containerPort: Invalid value: 8080: another port has this number and protocol",
        );
        let both = json!({"ports": [port("dns", 53), {"name": "dns-udp", "containerPort": 53, "protocol": "UDP"}]});
        assert!(mistakes(both).is_empty());
        check(
            json!({"ports": [port("web", 8080)], "monitoring": {"port": "metrics"}}),
            "spec.monitoring.port: Invalid value: \"metrics\": no port has this name",
        );
        check(
            json!({"initContainers": [{"name": "x"}], "sidecars": [{"name": "x"}]}),
            "spec.sidecars[0].name: Invalid value: \"x\": another container",
        );
        check(
            json!({"initContainers": [{"name": "app"}]}),
            "spec.initContainers[0].name: Invalid value: \"app\": this name is the application's own",
        );
        check(
            json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
            "spec.volumeMounts[0].name: Invalid value: \"data\": no volume has this name",
        );
        check(
            json!({"volumes": [{"name": "data", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]}),
            "spec.volumes[1].name: Duplicate value",
        );
    }

    #[test]
    fn a_canary_that_does_not_rise_is_refused() {
        let canary = |percents: &[i32]| {
            let steps: Vec<_> = percents.iter().map(|percent| json!({"percent": percent})).collect();
            json!({"strategy": {"type": "Canary", "canary": {"steps": steps}}})
        };
        for falling in [[10, 50, 10], [10, 50, 50]] {
            check(
                canary(&falling),
                &format!(
                    "spec.strategy.canary.steps[2].percent: Invalid value: {}: each step",
                    falling[2]
                ),
            );
        }
        assert!(mistakes(canary(&[10, 50, 100])).is_empty());
    }

    #[test]
    fn what_no_namespace_could_hold_is_not_waited_for() {
        check(
            json!({"envFrom": [{"secretRef": {"name": "kube-system/token"}}]}),
            "spec.envFrom[0].secretRef.name: Invalid value: \"kube-system/token\": not a name",
        );
        check(
            json!({"volumes": [{"name": "data", "configMap": {"name": ""}}]}),
            "spec.volumes[0].configMap.name: Invalid value: \"\"",
        );
        check(
            json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "Größe", "key": "a"}}}]}),
            "spec.env[0].valueFrom.secretKeyRef.name",
        );
        check(
            json!({"volumes": [{"name": "x", "secret": {}}]}),
            "spec.volumes[0].secret.secretName: Required value",
        );
        check(
            json!({"volumes": [{"name": "x", "projected": {"sources": [
                {"configMap": {"name": "fine"}}, {"secret": {"name": "a/b"}}]}}]}),
            "spec.volumes[0].projected.sources[1].secret.name: Invalid value: \"a/b\"",
        );
        check(
            json!({"initContainers": [{"name": "x", "envFrom": [{"configMapRef": {"name": "a/b"}}]}]}),
            "spec.initContainers[0].envFrom[0].configMapRef.name: Invalid value: \"a/b\"",
        );
        let variable = json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a/b", "key": "a"}}});
        check(
            json!({"sidecars": [{"name": "x", "env": [variable]}]}),
            "spec.sidecars[0].env[0].valueFrom.configMapKeyRef.name: Invalid value: \"a/b\"",
        );
    }

    #[test]
    fn a_way_in_that_no_gateway_could_make_is_refused() {
        let route = |hostnames: &[&str], path: &str| json!({"route": {"gateway": {"name": "door"}, "hostnames": hostnames, "path": path}});
        check(
            route(&["shop.example.com"], "shop"),
            "spec.route.path: Invalid value: \"shop\"",
        );
        check(
            route(&["shop.example.com", "Shop_1"], "/"),
            "spec.route.hostnames[1]: Invalid value: \"Shop_1\"",
        );
        check(route(&["10.0.0.1"], "/"), "spec.route.hostnames[0]");
        for host in ["10.0.0.1", "*.10.0.0.1", "Shop_1"] {
            check(json!({"ingress": {"host": host}}), "spec.ingress.host: Invalid value");
        }
        assert!(mistakes(route(&["*.example.com"], "/shop")).is_empty());
    }

    #[test]
    fn what_would_pass_for_the_operators_own_word_is_refused() {
        check(
            json!({"podAnnotations": {"stead.dev/config": "x"}}),
            "spec.podAnnotations: Invalid value: \"stead.dev/config\"",
        );
        check(
            json!({"podLabels": {"stead.dev/track": "canary"}}),
            "spec.podLabels: Invalid value: \"stead.dev/track\"",
        );
        let spec = json!({"image": "nginx:1.25", "podLabels": {"app.kubernetes.io/name": "mine"}});
        let warned = warnings(&serde_json::from_value(spec).expect("a spec"));
        assert!(
            warned.iter().any(|text| text.contains("yours has no effect")),
            "{warned:?}"
        );
    }

    #[test]
    fn files_that_no_object_could_hold_are_refused() {
        let big = "x".repeat(250_000);
        let files: Vec<_> = (0..5)
            .map(|n| json!({"path": format!("/a{n}"), "content": big}))
            .collect();
        check(json!({"files": files}), "spec.files: Invalid value: 1250000");
    }

    #[test]
    fn unicode_labels_are_refused_with_what_to_change() {
        let found = mistakes(json!({"podLabels": {"team": "größe"}}));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("spec.podLabels") && found[0].contains("größe"),
            "{found:?}"
        );
        assert!(found[0].contains("alphanumeric"), "{found:?}");
        assert!(mistakes(json!({"podLabels": {"team": "blue"}, "podAnnotations": {"Note/x": "größe"}})).is_empty());
    }
}
