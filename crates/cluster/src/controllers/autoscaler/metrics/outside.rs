//! Metrics that are not of the pods: of another object, or of something outside of the cluster.
//!
//! They come from the APIs `custom.metrics.k8s.io` and `external.metrics.k8s.io`, which some adapter has to serve; where
//! none does, the autoscaler says so in Kubernetes' words.

use super::{Failure, Look, Proposal, escaped, milli};
use crate::controllers::autoscaler::usage::Tolerance;
use crate::controllers::{discovery, pods};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, ExternalMetricSource, ExternalMetricStatus, MetricStatus, MetricTarget,
    MetricValueStatus, ObjectMetricSource, ObjectMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::Value;
use stead_machinery::quantity::Quantity;

/// What a metric shall be, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// In all.
    Value(i64),
    /// For each pod.
    Average(i64),
}

/// What is known of the workload.
#[derive(Clone, Copy)]
struct Workload {
    current: i32,
    ready: i32,
    tolerance: Tolerance,
}

impl Look<'_> {
    pub(super) async fn object(&self, source: &ObjectMetricSource) -> Result<Proposal, Failure> {
        let fail = |why: String| Failure {
            reason: "FailedGetObjectMetric",
            why: format!("failed to get object metric value: {why}"),
        };
        let (name, object) = (&source.metric.name, &source.described_object);
        let namespace = self.namespace;
        let aim = aim(&source.target).ok_or_else(|| {
            fail("invalid object metric source: neither a value target nor an average value target was set".to_string())
        })?;
        let path = format!(
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/{}/{}/{}",
            escaped(&self.resource_of(object).await),
            escaped(&object.name),
            escaped(name)
        );
        let list = self.fetch(&path).await.map_err(|why| {
            let kind = &object.kind;
            let name_of = &object.name;
            let why = format!("unable to fetch metrics from custom metrics API: {why}");
            fail(format!(
                "unable to get metric {name}: {kind} on {namespace} {name_of}/{why}"
            ))
        })?;
        let value = milli(&list["items"][0]["value"]).ok_or_else(|| {
            fail(format!(
                "unable to get metric {name}: no metrics returned from custom metrics API"
            ))
        })?;
        let workload = self.workload();
        Ok(Proposal {
            replicas: replicas(value, aim, workload),
            name: format!("{} metric {name}", object.kind),
            status: MetricStatus {
                type_: "Object".to_string(),
                object: Some(ObjectMetricStatus {
                    current: shown(value, aim, workload),
                    described_object: object.clone(),
                    metric: source.metric.clone(),
                }),
                ..MetricStatus::default()
            },
        })
    }

    pub(super) async fn external(&self, source: &ExternalMetricSource) -> Result<Proposal, Failure> {
        let (name, namespace) = (&source.metric.name, self.namespace);
        let fail = |why: String| Failure {
            reason: "FailedGetExternalMetric",
            why: format!("failed to get {name} external metric value: {why}"),
        };
        let aim = aim(&source.target).ok_or_else(|| {
            fail(
                "invalid external metric source: neither a value target nor an average value target was set"
                    .to_string(),
            )
        })?;
        let selector = source.metric.selector.as_ref();
        let selector = selector.and_then(pods::selector).map(|selector| selector.to_string());
        let mut path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}",
            escaped(name)
        );
        if let Some(selector) = selector.as_deref().filter(|selector| !selector.is_empty()) {
            path.push_str(&format!("?labelSelector={}", escaped(selector)));
        }
        let list = self.fetch(&path).await.map_err(|why| {
            let why = format!("unable to fetch metrics from external metrics API: {why}");
            let selector = selector.clone().unwrap_or_default();
            fail(format!(
                "unable to get external metric {namespace}/{name}/{selector}: {why}"
            ))
        })?;
        let items: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        let values: Option<Vec<i64>> = items.iter().map(|item| milli(&item["value"])).collect();
        let values = values.filter(|values| !values.is_empty()).ok_or_else(|| {
            fail(format!(
                "unable to get external metric {namespace}/{name}: no metrics returned from external metrics API"
            ))
        })?;
        let value = values.into_iter().fold(0, i64::saturating_add);
        let workload = self.workload();
        let selector = selector.unwrap_or_default();
        Ok(Proposal {
            replicas: replicas(value, aim, workload),
            name: format!("external metric {name}({selector})"),
            status: MetricStatus {
                type_: "External".to_string(),
                external: Some(ExternalMetricStatus {
                    current: shown(value, aim, workload),
                    metric: source.metric.clone(),
                }),
                ..MetricStatus::default()
            },
        })
    }

    /// The resource of an object, as `ingresses.networking.k8s.io`. A kind that nobody serves is guessed: the API will
    /// say that there is no such thing.
    async fn resource_of(&self, object: &CrossVersionObjectReference) -> String {
        let version = object.api_version.as_deref().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let served = discovery::kinds(&self.context.client()).await.unwrap_or_default();
        let mut kinds = served.iter().map(|served| &served.kind);
        let found = kinds.find(|kind| *kind.kind == object.kind && *kind.group == *group);
        found.map_or_else(|| format!("{}s", object.kind.to_lowercase()), |kind| kind.resource())
    }

    fn workload(&self) -> Workload {
        let ready = self
            .pods
            .iter()
            .filter(|pod| pods::is_active(pod) && pods::is_ready(pod))
            .count();
        Workload {
            current: self.current,
            ready: i32::try_from(ready).unwrap_or(i32::MAX),
            tolerance: self.tolerance,
        }
    }
}

fn aim(target: &MetricTarget) -> Option<Aim> {
    let read = |text: &Text| Some(text.0.parse::<Quantity>().ok()?.milli_value()).filter(|value| *value > 0);
    let value = target.value.as_ref().and_then(read).map(Aim::Value);
    value.or_else(|| target.average_value.as_ref().and_then(read).map(Aim::Average))
}

/// How many pods a value calls for.
fn replicas(value: i64, aim: Aim, workload: Workload) -> i32 {
    let (target, pods) = match aim {
        Aim::Value(target) => (target as f64, workload.ready),
        Aim::Average(target) => (target as f64 * f64::from(workload.current), workload.current),
    };
    // None is there yet to compare with: an average says how many there shall be, a value how many times one.
    let ratio = match target > 0.0 {
        true => value as f64 / target,
        false => f64::INFINITY,
    };
    if workload.tolerance.covers(ratio) {
        return workload.current;
    }
    let wanted = match aim {
        Aim::Value(_) => (ratio * f64::from(pods)).ceil(),
        Aim::Average(target) => (value as f64 / target as f64).ceil(),
    };
    wanted.clamp(0.0, f64::from(i32::MAX)) as i32
}

fn shown(value: i64, aim: Aim, workload: Workload) -> MetricValueStatus {
    let text = |milli: i64| Some(Text(Quantity::milli(milli).to_string()));
    match aim {
        Aim::Value(_) => MetricValueStatus {
            value: text(value),
            ..MetricValueStatus::default()
        },
        Aim::Average(_) => MetricValueStatus {
            average_value: text(value / i64::from(workload.current.max(1))),
            ..MetricValueStatus::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outside_calls_for_pods() {
        let check = |value: i64, aim: Aim, current: i32, expected: i32| {
            let workload = Workload {
                current,
                ready: current,
                tolerance: Tolerance { up: 0.1, down: 0.1 },
            };
            assert_eq!(replicas(value, aim, workload), expected, "{value} {aim:?} {current}");
        };
        check(20_000, Aim::Value(10_000), 3, 6);
        check(5_000, Aim::Value(10_000), 4, 2);
        check(10_500, Aim::Value(10_000), 3, 3);
        check(90_000, Aim::Average(10_000), 3, 9);
        check(31_000, Aim::Average(10_000), 3, 3);
        check(1_000, Aim::Average(10_000), 3, 1);
        check(0, Aim::Average(10_000), 3, 0);
        check(50_000, Aim::Average(10_000), 0, 5);
    }
}
