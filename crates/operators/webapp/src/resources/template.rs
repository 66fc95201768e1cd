//! The pod template: what runs.
//!
//! It is rendered once for each revision and kept with it. A later version of the operator may render the same
//! spec differently; the apps that run keep the template they have, and are not restarted by our upgrade.

use super::{ports, protocol};
use crate::names;
use crate::resources::files;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SeccompProfile, SecurityContext, TCPSocketAction, TopologySpreadConstraint, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::ObjectMeta;
use stead_apis::WebApp;
use stead_apis::image::ImageReference;
use stead_apis::webapp::Advice;
use stead_apis::webapp::container::{Profile, Security};
use stead_apis::webapp::validate::CONTAINER;

/// The template that this spec asks for, without what changes from track to track.
pub fn render(app: &WebApp) -> PodTemplateSpec {
    let spec = &app.spec;
    let security = spec.security.clone().unwrap_or_default();
    let mut containers = vec![container(app, &security)];
    containers.extend(
        spec.sidecars
            .iter()
            .cloned()
            .map(|sidecar| hardened(sidecar, &security)),
    );
    let inits = spec
        .init_containers
        .iter()
        .cloned()
        .map(|init| hardened(init, &security))
        .collect::<Vec<_>>();
    let mut volumes: Vec<Volume> = spec.volumes.iter().cloned().map(sourced).collect();
    volumes.extend(files::volume(app));
    let mut labels = spec.pod_labels.clone();
    labels.extend(names::selector(app));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: some_map(spec.pod_annotations.clone()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers,
            init_containers: some_list(inits),
            volumes: some_list(volumes),
            // Both names of the field: the server fills in the old one, and an apply that takes away only the new one
            // would get it back from there.
            service_account: spec.service_account_name.clone(),
            service_account_name: spec.service_account_name.clone(),
            automount_service_account_token: Some(security.automount_service_account_token.unwrap_or(false)),
            image_pull_secrets: some_list(spec.image_pull_secrets.clone()),
            node_selector: some_map(spec.node_selector.clone()),
            affinity: spec.affinity.clone(),
            tolerations: some_list(spec.tolerations.clone()),
            topology_spread_constraints: Some(spread(app)),
            priority_class_name: spec.priority_class_name.clone(),
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            security_context: pod_security(&security),
            ..PodSpec::default()
        }),
    }
}

fn container(app: &WebApp, security: &Security) -> Container {
    let spec = &app.spec;
    let probes = spec.probes.clone().unwrap_or_default();
    let mut mounts = spec.volume_mounts.clone();
    mounts.extend(files::mounts(app));
    let listed = ports(app).into_iter().map(|port| ContainerPort {
        name: Some(port.name.clone()),
        container_port: port.container_port,
        protocol: Some(protocol(&port)),
        ..ContainerPort::default()
    });
    let main = Container {
        name: CONTAINER.to_string(),
        image: Some(spec.image.clone()),
        command: some_list(spec.command.clone()),
        args: some_list(spec.args.clone()),
        env: some_list(spec.env.clone()),
        env_from: some_list(spec.env_from.clone()),
        ports: Some(listed.collect()),
        resources: requirements(app),
        volume_mounts: some_list(mounts),
        startup_probe: probes.startup,
        readiness_probe: Some(probes.readiness.unwrap_or_else(|| connects(app))),
        liveness_probe: probes.liveness,
        ..Container::default()
    };
    hardened(main, security)
}

/// A volume with Kubernetes' own default said by us: what the server fills in belongs to nobody, and would stay beside the
/// source that the volume gets later.
fn sourced(mut volume: Volume) -> Volume {
    let name = std::mem::take(&mut volume.name);
    if volume == Volume::default() {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    volume.name = name;
    volume
}

/// When a node pulls an image of which nothing is said: always, where another image may appear under the same name. The
/// server fills something in as well, and keeps it when the image becomes another one.
fn pull_policy(image: &str) -> &'static str {
    let moving = image.parse::<ImageReference>().is_ok_and(|image| image.is_moving());
    if moving { "Always" } else { "IfNotPresent" }
}

/// What the spec asks for, or what observed use advises where the spec leaves it to that. A request is never above its
/// limit: such a pod would be refused.
fn requirements(app: &WebApp) -> Option<ResourceRequirements> {
    let mut wanted = app.spec.resources.clone();
    let advice = app.status.as_ref().and_then(|status| status.advice.as_ref());
    if let Some(advice) = advice.filter(|_| app.spec.advice == Advice::Apply) {
        let wanted = wanted.get_or_insert_default();
        for (name, advised) in [("cpu", &advice.cpu), ("memory", &advice.memory)] {
            let limit = wanted.limits.as_ref().and_then(|limits| limits.get(name)).cloned();
            let request = match limit {
                Some(limit) if is_more(advised, &limit.0) => limit,
                _ => Quantity(advised.clone()),
            };
            wanted
                .requests
                .get_or_insert_default()
                .insert(name.to_string(), request);
        }
    }
    wanted
}

fn is_more(one: &str, other: &str) -> bool {
    let read = |text: &str| text.parse::<stead_machinery::quantity::Quantity>().ok();
    read(one)
        .zip(read(other))
        .is_some_and(|(one, other)| one.as_f64() > other.as_f64())
}

/// Ready when the first port takes connections: right for any server, and asks nothing of the application.
fn connects(app: &WebApp) -> Probe {
    let port = ports(app).into_iter().next().map(|port| port.name).unwrap_or_default();
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String(port),
            host: None,
        }),
        period_seconds: Some(5),
        ..Probe::default()
    }
}

/// The container with what its security profile adds, and nothing that it says itself taken away.
fn hardened(mut container: Container, security: &Security) -> Container {
    let image = container.image.as_deref().unwrap_or_default();
    let usual = pull_policy(image);
    container.image_pull_policy.get_or_insert_with(|| usual.to_string());
    if security.profile == Profile::Off
        && security.run_as_user.is_none()
        && security.read_only_root_filesystem.is_none()
    {
        return container;
    }
    let mut context = container.security_context.take().unwrap_or_default();
    if security.profile != Profile::Off {
        context.allow_privilege_escalation.get_or_insert(false);
    }
    if security.profile == Profile::Restricted {
        context.run_as_non_root.get_or_insert(true);
        context.capabilities.get_or_insert_with(|| Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_string()]),
        });
    }
    if container.name == CONTAINER {
        context.read_only_root_filesystem = context.read_only_root_filesystem.or(security.read_only_root_filesystem);
    }
    container.security_context = (context != SecurityContext::default()).then_some(context);
    container
}

fn pod_security(security: &Security) -> Option<PodSecurityContext> {
    let mut context = PodSecurityContext {
        run_as_user: security.run_as_user,
        fs_group: security.fs_group,
        ..PodSecurityContext::default()
    };
    if security.profile != Profile::Off {
        let profile = SeccompProfile {
            type_: "RuntimeDefault".to_string(),
            localhost_profile: None,
        };
        context.seccomp_profile = Some(profile);
    }
    if security.profile == Profile::Restricted {
        context.run_as_non_root = Some(true);
    }
    (context != PodSecurityContext::default()).then_some(context)
}

/// Over zones first, then over nodes, wherever that is possible: never a reason to stay pending.
fn spread(app: &WebApp) -> Vec<TopologySpreadConstraint> {
    if !app.spec.topology_spread_constraints.is_empty() {
        return app.spec.topology_spread_constraints.clone();
    }
    let over = |topology_key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology_key.to_string(),
        when_unsatisfiable: "ScheduleAnyway".to_string(),
        label_selector: Some(LabelSelector {
            match_labels: Some(names::selector(app)),
            match_expressions: None,
        }),
        ..TopologySpreadConstraint::default()
    };
    vec![over("topology.kubernetes.io/zone"), over("kubernetes.io/hostname")]
}

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn some_map<K, V>(map: std::collections::BTreeMap<K, V>) -> Option<std::collections::BTreeMap<K, V>> {
    (!map.is_empty()).then_some(map)
}
