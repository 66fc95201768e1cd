//! How many replicas a metric calls for. Pure.
//!
//! Pods that are not ready, or of which nothing was measured, are never a reason to scale further: in the direction
//! of the change they are taken for the harmless case.

use crate::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stead_machinery::quantity::Quantity;

/// After its start the processor use of a pod is not typical for so long.
const SETTLING: SignedDuration = SignedDuration::from_secs(300);
/// A pod that has been unready since before this was over has never been ready.
const FIRST_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// What was measured of one pod, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub value: i64,
    pub at: Timestamp,
    /// The time over which it was measured.
    pub window: SignedDuration,
}

/// What was measured, by pod.
pub type Samples = BTreeMap<String, Sample>;

/// How far use may be from the target before anything changes, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    pub up: f64,
    pub down: f64,
}

impl Tolerance {
    /// Whether a ratio of what is to what shall be needs no change.
    pub fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What use is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// In percent of what pods ask for.
    Utilization(i64),
    /// For each pod, in thousandths.
    Average(i64),
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure<'a> {
    Resource(&'a str),
    ContainerResource {
        resource: &'a str,
        container: &'a str,
    },
    /// Something that pods report themselves.
    Pods,
}

impl Measure<'_> {
    fn is_processor(self) -> bool {
        matches!(
            self,
            Measure::Resource("cpu") | Measure::ContainerResource { resource: "cpu", .. }
        )
    }
}

/// Everything that decides.
#[derive(Debug)]
pub struct Question<'a> {
    pub pods: &'a [Arc<Pod>],
    pub samples: Samples,
    pub measure: Measure<'a>,
    pub target: Target,
    pub current: i32,
    pub tolerance: Tolerance,
    pub now: Timestamp,
}

/// What comes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub replicas: i32,
    /// The mean of what was measured, in thousandths.
    pub average: i64,
    /// In percent, where the target is.
    pub utilization: Option<i64>,
}

/// Pods by what their samples are worth.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups<'a> {
    ready: usize,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
    ignored: BTreeSet<&'a str>,
}

/// How many replicas the samples call for, or why that cannot be said.
pub fn replicas(question: Question<'_>) -> Result<Answer, String> {
    let Question { pods, target, .. } = question;
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_string());
    }
    let groups = group(&question);
    let requests = match target {
        Target::Utilization(_) => requests(pods, question.measure)?,
        Target::Average(_) => BTreeMap::new(),
    };
    let mut values: BTreeMap<&str, i64> = question
        .samples
        .iter()
        .map(|(name, sample)| (name.as_str(), sample.value))
        .filter(|(name, _)| !groups.ignored.contains(name) && !groups.unready.contains(name))
        .collect();
    if values.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_string());
    }
    let (ratio, utilization) = ratio(&values, &requests, target)?;
    let average = values.values().sum::<i64>() / count(values.len());
    let answer = |replicas| Answer {
        replicas,
        average,
        utilization,
    };
    let unready_matter = !groups.unready.is_empty() && ratio > 1.0;
    if !unready_matter && groups.missing.is_empty() {
        return Ok(answer(match question.tolerance.covers(ratio) {
            true => question.current,
            false => scaled(ratio, groups.ready),
        }));
    }
    for name in &groups.missing {
        let request = requests.get(name).copied().unwrap_or(0);
        match target {
            // As if it used all that it asked for, or the target where that is more.
            Target::Utilization(target) if ratio < 1.0 => values.insert(name, request * target.max(100) / 100),
            Target::Average(target) if ratio < 1.0 => values.insert(name, target),
            _ if ratio > 1.0 => values.insert(name, 0),
            _ => None,
        };
    }
    if unready_matter {
        values.extend(groups.unready.iter().map(|name| (*name, 0)));
    }
    let (corrected, _) = self::ratio(&values, &requests, target)?;
    let turned = (ratio < 1.0 && corrected > 1.0) || (ratio > 1.0 && corrected < 1.0);
    if turned || question.tolerance.covers(corrected) {
        return Ok(answer(question.current));
    }
    let wanted = scaled(corrected, values.len());
    let against = (corrected < 1.0 && wanted > question.current) || (corrected > 1.0 && wanted < question.current);
    Ok(answer(if against { question.current } else { wanted }))
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX).max(1)
}

/// Rounded up: a little too much is better than a little too few.
fn scaled(ratio: f64, pods: usize) -> i32 {
    let wanted = (ratio * count(pods) as f64).ceil();
    // The cast saturates, which is what too large a wish shall do.
    if pods == 0 { 0 } else { wanted as i32 }
}

/// Use by the target, and the use in percent where that is what the target says.
fn ratio(
    values: &BTreeMap<&str, i64>,
    requests: &BTreeMap<&str, i64>,
    target: Target,
) -> Result<(f64, Option<i64>), String> {
    match target {
        Target::Utilization(target) => {
            let asked = values.iter().filter(|(name, _)| requests.contains_key(*name));
            let (mut used, mut requested) = (0_i64, 0_i64);
            for (name, value) in asked {
                used = used.saturating_add(*value);
                requested = requested.saturating_add(requests.get(name).copied().unwrap_or(0));
            }
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_string());
            }
            let utilization = used.saturating_mul(100) / requested;
            Ok((utilization as f64 / target.max(1) as f64, Some(utilization)))
        }
        Target::Average(target) => {
            let average = values.values().sum::<i64>() / count(values.len());
            Ok((average as f64 / target.max(1) as f64, None))
        }
    }
}

fn group<'a>(question: &Question<'a>) -> Groups<'a> {
    let mut groups = Groups::default();
    for pod in question.pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let phase = crate::controllers::pods::phase(pod);
        if pod.metadata.deletion_timestamp.is_some() || phase == "Failed" {
            groups.ignored.insert(name);
        } else if phase == "Pending" {
            groups.unready.insert(name);
        } else {
            match question.samples.get(name) {
                None => drop(groups.missing.insert(name)),
                Some(sample) if question.measure.is_processor() && is_unsettled(pod, sample, question.now) => {
                    groups.unready.insert(name);
                }
                Some(_) => groups.ready += 1,
            }
        }
    }
    groups
}

/// Whether the processor use of a pod says nothing yet: it is starting, or was never ready.
fn is_unsettled(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready: Option<&PodCondition> = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
    let started = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let (Some(ready), Some(started)) = (ready, started) else {
        return true;
    };
    let changed = ready.last_transition_time.as_ref().map_or(started, |time| time.0);
    if clock::after(started, SETTLING) > now {
        ready.status == "False" || sample.at < changed + sample.window
    } else {
        ready.status == "False" && clock::after(started, FIRST_READINESS) > changed
    }
}

/// What each pod asks for of the resource, in thousandths. A container that does not say is an error: nothing could
/// be compared with what it uses.
fn requests<'a>(pods: &'a [Arc<Pod>], measure: Measure<'_>) -> Result<BTreeMap<&'a str, i64>, String> {
    let (resource, only) = match measure {
        Measure::Resource(resource) => (resource, None),
        Measure::ContainerResource { resource, container } => (resource, Some(container)),
        Measure::Pods => return Err("a utilization can be computed of resources alone".to_string()),
    };
    let mut all = BTreeMap::new();
    for pod in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let Some(spec) = &pod.spec else { continue };
        let whole = spec
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref());
        let of_pod = whole.and_then(|requests| milli(requests.get(resource)?));
        let sum = match of_pod.filter(|_| only.is_none()) {
            Some(amount) => amount,
            None => {
                let sidecars = spec.init_containers.iter().flatten();
                let sidecars = sidecars.filter(|init| init.restart_policy.as_deref() == Some("Always"));
                let containers = spec.containers.iter().chain(sidecars);
                let mut sum = 0_i64;
                for container in containers.filter(|one| only.is_none_or(|only| one.name == only)) {
                    let asked = request(container, resource);
                    sum = sum.saturating_add(asked.ok_or_else(|| {
                        format!(
                            "missing request for {resource} in container {} of Pod {name}",
                            container.name
                        )
                    })?);
                }
                sum
            }
        };
        all.insert(name, sum);
    }
    Ok(all)
}

fn request(container: &Container, resource: &str) -> Option<i64> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    milli(requests.get(resource)?)
}

fn milli(text: &Text) -> Option<i64> {
    Some(text.0.parse::<Quantity>().ok()?.milli_value())
}
