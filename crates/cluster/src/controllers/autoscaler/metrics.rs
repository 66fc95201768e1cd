//! The numbers that autoscalers look at, from the metrics APIs.

mod outside;

use super::usage::{self, Measure, Question, Sample, Samples, Target, Tolerance};
use crate::controllers::pods;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HPAScalingRules, HorizontalPodAutoscalerSpec, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::Value;
use std::sync::Arc;
use stead::{Context, Key, Store};
use stead_machinery::quantity::Quantity;
use stead_machinery::selector::LabelSelector as Selector;

/// How far use may be from the target before anything changes, if nothing else is said.
const TOLERANCE: f64 = 0.1;
/// The window of samples that do not say theirs.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// What one metric calls for.
pub struct Proposal {
    pub replicas: i32,
    /// How people call the metric.
    pub name: String,
    pub status: MetricStatus,
}

/// Why a metric could not be used.
pub struct Failure {
    pub reason: &'static str,
    pub why: String,
}

/// Looks at every metric of an autoscaler.
pub async fn all(
    context: &Context,
    store: &Store<Pod>,
    key: &Key,
    spec: &HorizontalPodAutoscalerSpec,
    scale: &Value,
) -> Vec<Result<Proposal, Failure>> {
    let namespace = key.namespace().unwrap_or_default();
    let selector = scale["status"]["selector"].as_str().unwrap_or_default();
    let invalid = |why: &str| {
        vec![Err(Failure {
            reason: "InvalidSelector",
            why: why.to_string(),
        })]
    };
    if selector.is_empty() {
        return invalid("the HPA target's scale is missing a selector");
    }
    let Ok(parsed) = Selector::parse(selector) else {
        return invalid("couldn't convert selector into a corresponding internal selector object");
    };
    let mut own = store.in_namespace(namespace);
    own.retain(|pod| pods::matches(&parsed, pod));
    let look = Look {
        context,
        namespace,
        selector,
        pods: &own,
        tolerance: tolerance(spec),
        current: i32::try_from(scale["spec"]["replicas"].as_i64().unwrap_or(0)).unwrap_or(i32::MAX),
    };
    let mut found = Vec::new();
    for metric in spec.metrics.iter().flatten() {
        found.push(look.metric(metric).await);
    }
    found
}

fn tolerance(spec: &HorizontalPodAutoscalerSpec) -> Tolerance {
    let behavior = spec.behavior.as_ref();
    let of = |rules: Option<&HPAScalingRules>| {
        let text = rules.and_then(|rules| rules.tolerance.as_ref());
        let own = text.and_then(|text| text.0.parse::<Quantity>().ok());
        own.map_or(TOLERANCE, |quantity| quantity.as_f64())
    };
    Tolerance {
        up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
    }
}

struct Look<'a> {
    context: &'a Context,
    namespace: &'a str,
    selector: &'a str,
    pods: &'a [Arc<Pod>],
    tolerance: Tolerance,
    current: i32,
}

impl Look<'_> {
    async fn metric(&self, metric: &MetricSpec) -> Result<Proposal, Failure> {
        if let Some(source) = &metric.resource {
            let measure = Measure::Resource(&source.name);
            return self.resource(measure, &source.name, &source.target).await;
        }
        if let Some(source) = &metric.container_resource {
            let measure = Measure::ContainerResource {
                resource: &source.name,
                container: &source.container,
            };
            return self.resource(measure, &source.name, &source.target).await;
        }
        if let Some(source) = &metric.pods {
            return self.pods(&source.metric.name, metric).await;
        }
        if let Some(source) = &metric.object {
            return self.object(source).await;
        }
        if let Some(source) = &metric.external {
            return self.external(source).await;
        }
        Err(Failure {
            reason: "InvalidMetricSourceType",
            why: format!("unknown metric source type {:?}", metric.type_),
        })
    }

    async fn resource(&self, measure: Measure<'_>, name: &str, target: &MetricTarget) -> Result<Proposal, Failure> {
        let reason = match measure {
            Measure::ContainerResource { .. } => "FailedGetContainerResourceMetric",
            Measure::Resource(_) | Measure::Pods => "FailedGetResourceMetric",
        };
        let path = format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={}",
            self.namespace,
            escaped(self.selector)
        );
        let aim = aim(target);
        let what = match aim {
            Some(Target::Utilization(_)) => "utilization",
            _ => "resource metric value",
        };
        let fail = |why: String| Failure {
            reason,
            why: format!("failed to get {name} {what}: {why}"),
        };
        let aim = aim.ok_or_else(|| fail("invalid target".to_string()))?;
        let list = self
            .fetch(&path)
            .await
            .map_err(|why| fail(format!("unable to get metrics for resource {name}: {why}")))?;
        let samples = of_pods(&list, measure);
        if samples.is_empty() {
            let why =
                format!("unable to get metrics for resource {name}: no metrics returned from resource metrics API");
            return Err(fail(why));
        }
        let answer = usage::replicas(self.question(samples, measure, aim)).map_err(fail)?;
        let value = MetricValueStatus {
            average_utilization: answer.utilization.and_then(|percent| i32::try_from(percent).ok()),
            average_value: Some(Text(Quantity::milli(answer.average).to_string())),
            value: None,
        };
        let (what, status) = match measure {
            Measure::ContainerResource { container, .. } => (
                "container resource",
                MetricStatus {
                    type_: "ContainerResource".to_string(),
                    container_resource: Some(ContainerResourceMetricStatus {
                        container: container.to_string(),
                        current: value,
                        name: name.to_string(),
                    }),
                    ..MetricStatus::default()
                },
            ),
            Measure::Resource(_) | Measure::Pods => (
                "resource",
                MetricStatus {
                    type_: "Resource".to_string(),
                    resource: Some(ResourceMetricStatus {
                        current: value,
                        name: name.to_string(),
                    }),
                    ..MetricStatus::default()
                },
            ),
        };
        let name = match aim {
            Target::Utilization(_) => format!("{name} {what} utilization (percentage of request)"),
            Target::Average(_) => format!("{name} {what}"),
        };
        Ok(Proposal {
            replicas: answer.replicas,
            name,
            status,
        })
    }

    async fn pods(&self, name: &str, metric: &MetricSpec) -> Result<Proposal, Failure> {
        let fail = |why: String| Failure {
            reason: "FailedGetPodsMetric",
            why: format!("failed to get pods metric value: {why}"),
        };
        let source = metric.pods.as_ref();
        let aim = source.and_then(|source| match aim(&source.target)? {
            average @ Target::Average(_) => Some(average),
            Target::Utilization(_) => None,
        });
        let aim = aim.ok_or_else(|| fail("the target must be an average value".to_string()))?;
        let path = format!(
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}/pods/*/{name}?labelSelector={}",
            self.namespace,
            escaped(self.selector)
        );
        let list = self
            .fetch(&path)
            .await
            .map_err(|why| fail(format!("unable to get metric {name}: {why}")))?;
        let samples = reported(&list);
        if samples.is_empty() {
            return Err(fail(format!(
                "unable to get metric {name}: no metrics returned from custom metrics API"
            )));
        }
        let answer = usage::replicas(self.question(samples, Measure::Pods, aim)).map_err(fail)?;
        Ok(Proposal {
            replicas: answer.replicas,
            name: format!("pods metric {name}"),
            status: MetricStatus {
                type_: "Pods".to_string(),
                pods: source.map(|source| PodsMetricStatus {
                    current: MetricValueStatus {
                        average_value: Some(Text(Quantity::milli(answer.average).to_string())),
                        ..MetricValueStatus::default()
                    },
                    metric: source.metric.clone(),
                }),
                ..MetricStatus::default()
            },
        })
    }

    fn question<'a>(&'a self, samples: Samples, measure: Measure<'a>, target: Target) -> Question<'a> {
        Question {
            pods: self.pods,
            samples,
            measure,
            target,
            current: self.current,
            tolerance: self.tolerance,
            now: self.context.now(),
        }
    }

    async fn fetch(&self, path: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.context.client().request::<Value>(request).await;
        answer.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }
}

fn aim(target: &MetricTarget) -> Option<Target> {
    let milli = |text: &Text| Some(text.0.parse::<Quantity>().ok()?.milli_value());
    match target.type_.as_str() {
        "Utilization" => Some(Target::Utilization(i64::from(target.average_utilization?))),
        _ => target.average_value.as_ref().and_then(milli).map(Target::Average),
    }
}

/// A selector as part of a query: everything that could end it or the URL is escaped.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What a list of PodMetrics says of a resource. A pod of which a container was not measured is left out.
fn of_pods(list: &Value, measure: Measure<'_>) -> Samples {
    let (resource, only) = match measure {
        Measure::Resource(resource) => (resource, None),
        Measure::ContainerResource { resource, container } => (resource, Some(container)),
        Measure::Pods => return Samples::new(),
    };
    let mut samples = Samples::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let containers = item["containers"].as_array().into_iter().flatten();
        let wanted = containers.filter(|one| only.is_none_or(|only| one["name"] == only));
        let values: Option<Vec<i64>> = wanted.map(|container| milli(&container["usage"][resource])).collect();
        let name = item["metadata"]["name"].as_str();
        if let (Some(name), Some(values)) = (name, values.filter(|values| !values.is_empty())) {
            samples.insert(name.to_string(), sample(values.iter().sum(), item));
        }
    }
    samples
}

/// What pods report themselves, in a list of MetricValues.
fn reported(list: &Value) -> Samples {
    let items = list["items"].as_array().into_iter().flatten();
    let read = |item: &Value| {
        let name = item["describedObject"]["name"].as_str()?;
        Some((name.to_string(), sample(milli(&item["value"])?, item)))
    };
    items.filter_map(read).collect()
}

fn milli(value: &Value) -> Option<i64> {
    Some(value.as_str()?.parse::<Quantity>().ok()?.milli_value())
}

fn sample(value: i64, item: &Value) -> Sample {
    let at = item["timestamp"].as_str().and_then(|text| text.parse().ok());
    let window = match &item["window"] {
        Value::String(text) => text.parse().ok(),
        _ => item["windowSeconds"].as_i64().map(SignedDuration::from_secs),
    };
    Sample {
        value,
        at: at.unwrap_or(Timestamp::UNIX_EPOCH),
        window: window.unwrap_or(WINDOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_metrics_are_summed_over_containers() {
        let list = json!({"items": [
            {"metadata": {"name": "a"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
             "containers": [{"name": "c", "usage": {"cpu": "250m"}}, {"name": "d", "usage": {"cpu": "1500000n"}}]},
            {"metadata": {"name": "b"}, "containers": [{"name": "c", "usage": {}}]},
        ]});
        let all = of_pods(&list, Measure::Resource("cpu"));
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all["a"].value, 252);
        assert_eq!(all["a"].window, SignedDuration::from_secs(30));
        let container = Measure::ContainerResource {
            resource: "cpu",
            container: "c",
        };
        assert_eq!(of_pods(&list, container)["a"].value, 250);
    }

    #[test]
    fn custom_metrics_are_read_by_the_pod_they_describe() {
        let list = json!({"items": [{"describedObject": {"name": "a"}, "value": "12", "windowSeconds": 5}]});
        let all = reported(&list);
        assert_eq!(
            (all["a"].value, all["a"].window),
            (12_000, SignedDuration::from_secs(5))
        );
    }

    #[test]
    fn a_selector_survives_a_url() {
        assert_eq!(escaped("app=web,tier in (a,b)"), "app%3Dweb%2Ctier%20in%20%28a%2Cb%29");
    }
}
