//! Advice on resource requests, from what the pods use.

use crate::seen::Usage;
use stead_apis::webapp::status::ResourceAdvice;
use stead_machinery::quantity::Quantity;

/// Room above the largest use that was seen.
const HEADROOM_PERCENT: i64 = 20;
/// A new figure replaces the old one only when it differs by more: advice that trembles helps nobody, and every
/// change of it is a write.
const STEADY_PERCENT: i64 = 25;
/// The least processor that is advised, in thousandths.
const LEAST_CPU: i64 = 10;
const MEBIBYTE: i64 = 1024 * 1024;

/// The advice for this use, keeping what was advised before while it still fits.
pub fn from_usage(usage: &[Usage], before: Option<&ResourceAdvice>) -> Option<ResourceAdvice> {
    let Some(largest_cpu) = usage.iter().map(|pod| pod.cpu_millis).max() else {
        return before.cloned();
    };
    let largest_memory = usage.iter().map(|pod| pod.memory_bytes).max().unwrap_or(0);
    let cpu = with_room(largest_cpu).max(LEAST_CPU);
    let memory = (with_room(largest_memory) / MEBIBYTE + 1).max(1);
    if let Some(before) = before.filter(|before| still_fits(before, cpu, memory * MEBIBYTE)) {
        return Some(before.clone());
    }
    Some(ResourceAdvice {
        cpu: Quantity::milli(cpu).to_string(),
        memory: format!("{memory}Mi"),
        basis: format!(
            "the largest use among {} pods and {HEADROOM_PERCENT} % above it",
            usage.len()
        ),
    })
}

fn with_room(value: i64) -> i64 {
    value + value * HEADROOM_PERCENT / 100
}

fn still_fits(before: &ResourceAdvice, cpu: i64, memory: i64) -> bool {
    let near = |old: i64, new: i64| (old - new).abs() * 100 <= old.max(1) * STEADY_PERCENT;
    let read = |text: &str| text.parse::<Quantity>().ok();
    read(&before.cpu).is_some_and(|old| near(old.milli_value(), cpu))
        && read(&before.memory).is_some_and(|old| near(old.value(), memory))
}
