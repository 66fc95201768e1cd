//! How fast a workload may grow and shrink: stabilisation, policies and limits. Pure, but for its memory.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerSpec};

/// For so long a lower recommendation does not count while a higher one is remembered, if nothing else is said.
const DOWN_WINDOW: i64 = 300;
/// Without a behaviour a workload may double, or grow to this many at once.
const LEAST_LIMIT: i32 = 4;

/// What is remembered of one autoscaler. It is lost with the process: then the first recommendation is the size
/// that is there, so that a restart never shrinks anything at once.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    recommendations: Vec<(Timestamp, i32)>,
    ups: Vec<(Timestamp, i32)>,
    downs: Vec<(Timestamp, i32)>,
}

/// A size, and the words for what shaped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paced {
    pub replicas: i32,
    /// Reason and message of `AbleToScale`.
    pub able: (&'static str, &'static str),
    /// Status, reason and message of `ScalingLimited`.
    pub limited: (&'static str, &'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const HELD_UP: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const HELD_DOWN: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FAST_UP: (&str, &str) = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_MANY: (&str, &str) = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FAST_DOWN: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const TOO_FEW: (&str, &str) = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);

impl Memory {
    /// Takes the size that is there for the first recommendation.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Remembers a change of size, for the policies.
    pub fn changed(&mut self, from: i32, to: i32, now: Timestamp) {
        if to > from {
            self.ups.push((now, to - from));
        } else {
            self.downs.push((now, from - to));
        }
    }

    fn forget(&mut self, now: Timestamp, longest: i64) {
        let cutoff = now - SignedDuration::from_secs(longest);
        for remembered in [&mut self.recommendations, &mut self.ups, &mut self.downs] {
            remembered.retain(|(at, _)| *at >= cutoff);
        }
    }
}

/// The size to go to now, from the one that metrics call for.
pub fn pace(
    memory: &mut Memory,
    spec: &HorizontalPodAutoscalerSpec,
    current: i32,
    desired: i32,
    now: Timestamp,
) -> Paced {
    let least = spec.min_replicas.unwrap_or(1);
    let behavior = spec.behavior.as_ref();
    let up = behavior.and_then(|behavior| behavior.scale_up.as_ref());
    let down = behavior.and_then(|behavior| behavior.scale_down.as_ref());
    let up_window = up.and_then(|rules| rules.stabilization_window_seconds).unwrap_or(0);
    let down_window = down.and_then(|rules| rules.stabilization_window_seconds);
    let down_window = down_window.map_or(DOWN_WINDOW, i64::from);
    let stable = stabilised(memory, current, desired, now, (i64::from(up_window), down_window));
    let able = match stable == desired {
        true => READY,
        false if desired >= current => HELD_UP,
        false => HELD_DOWN,
    };
    memory.recommendations.push((now, desired));
    let (replicas, (reason, message)) = match behavior {
        None => by_default(current, stable, least, spec.max_replicas),
        Some(_) if stable > current => {
            let limit = up_limit(memory, current, up, now).max(current);
            match limit < spec.max_replicas {
                true => capped_above(stable, limit, TOO_FAST_UP),
                false => capped_above(stable, spec.max_replicas, TOO_MANY),
            }
        }
        Some(_) if stable < current => {
            let limit = down_limit(memory, current, down, now).min(current);
            match limit > least {
                true => capped_below(stable, limit, TOO_FAST_DOWN),
                false => capped_below(stable, least, TOO_FEW),
            }
        }
        Some(_) => (stable, WITHIN),
    };
    let longest = longest_period(up)
        .max(longest_period(down))
        .max(down_window)
        .max(i64::from(up_window));
    memory.forget(now, longest);
    let limited = if replicas == stable { "False" } else { "True" };
    Paced {
        replicas,
        able,
        limited: (limited, reason, message),
    }
}

/// The desired size, held by what was recommended within the windows.
fn stabilised(memory: &Memory, current: i32, desired: i32, now: Timestamp, windows: (i64, i64)) -> i32 {
    let within = |seconds: i64| {
        let cutoff = now - SignedDuration::from_secs(seconds);
        let recent = memory.recommendations.iter().filter(move |(at, _)| *at > cutoff);
        recent.map(|(_, size)| *size)
    };
    let lowest = within(windows.0).fold(desired, i32::min);
    let highest = within(windows.1).fold(desired, i32::max);
    current.max(lowest).min(highest)
}

type Words = (&'static str, &'static str);

fn capped_above(wanted: i32, limit: i32, words: Words) -> (i32, Words) {
    match wanted > limit {
        true => (limit, words),
        false => (wanted, WITHIN),
    }
}

fn capped_below(wanted: i32, limit: i32, words: Words) -> (i32, Words) {
    match wanted < limit {
        true => (limit, words),
        false => (wanted, WITHIN),
    }
}

/// The limits where no behaviour is given.
fn by_default(current: i32, wanted: i32, least: i32, most: i32) -> (i32, Words) {
    let rate = current.saturating_mul(2).max(LEAST_LIMIT);
    if wanted < least {
        return (least, TOO_FEW);
    }
    match most > rate {
        true => capped_above(wanted, rate, TOO_FAST_UP),
        false => capped_above(wanted, most, TOO_MANY),
    }
}

/// How large the workload was when a policy's period began.
fn at_start(memory: &Memory, current: i32, policy: &HPAScalingPolicy, now: Timestamp) -> i32 {
    let cutoff = now - SignedDuration::from_secs(i64::from(policy.period_seconds));
    let sum = |changes: &[(Timestamp, i32)]| -> i32 {
        let recent = changes.iter().filter(|(at, _)| *at > cutoff);
        recent.fold(0, |sum: i32, (_, change)| sum.saturating_add(*change))
    };
    current - sum(&memory.ups) + sum(&memory.downs)
}

fn up_limit(memory: &Memory, current: i32, rules: Option<&HPAScalingRules>, now: Timestamp) -> i32 {
    let standard = [policy("Pods", 4), policy("Percent", 100)];
    let limits = policies(rules, &standard).iter().map(|policy| {
        let start = at_start(memory, current, policy, now);
        match policy.type_.as_str() {
            "Pods" => start.saturating_add(policy.value),
            // Rounded up, or a small workload would never grow.
            _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
        }
    });
    match select(rules) {
        Select::Disabled => current,
        Select::Least => limits.min().unwrap_or(current),
        Select::Most => limits.max().unwrap_or(current),
    }
}

fn down_limit(memory: &Memory, current: i32, rules: Option<&HPAScalingRules>, now: Timestamp) -> i32 {
    let standard = [policy("Percent", 100)];
    let limits = policies(rules, &standard).iter().map(|policy| {
        let start = at_start(memory, current, policy, now);
        match policy.type_.as_str() {
            "Pods" => start.saturating_sub(policy.value),
            _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
        }
    });
    match select(rules) {
        Select::Disabled => current,
        Select::Least => limits.max().unwrap_or(current),
        Select::Most => limits.min().unwrap_or(current),
    }
}

/// Which of several policies counts.
enum Select {
    Disabled,
    /// The one that changes least.
    Least,
    Most,
}

fn select(rules: Option<&HPAScalingRules>) -> Select {
    match rules.and_then(|rules| rules.select_policy.as_deref()) {
        Some("Disabled") => Select::Disabled,
        Some("Min") => Select::Least,
        _ => Select::Most,
    }
}

fn policies<'a>(rules: Option<&'a HPAScalingRules>, standard: &'a [HPAScalingPolicy]) -> &'a [HPAScalingPolicy] {
    let own = rules.and_then(|rules| rules.policies.as_deref());
    own.filter(|policies| !policies.is_empty()).unwrap_or(standard)
}

fn policy(type_: &str, value: i32) -> HPAScalingPolicy {
    HPAScalingPolicy {
        type_: type_.to_string(),
        value,
        period_seconds: 15,
    }
}

fn longest_period(rules: Option<&HPAScalingRules>) -> i64 {
    let policies = rules.iter().flat_map(|rules| rules.policies.iter().flatten());
    policies
        .map(|policy| i64::from(policy.period_seconds))
        .max()
        .unwrap_or(15)
}
