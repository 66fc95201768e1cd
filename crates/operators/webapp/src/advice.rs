//! Advice on resource requests, from what the pods use.

use crate::seen::Usage;
use stead_apis::webapp::status::ResourceAdvice;
use stead_machinery::quantity::Quantity;

/// Room above the largest use that was seen.
const HEADROOM_PERCENT: i64 = 20;
/// Advice is lowered only when it is so many times what is needed: advice that trembles helps nobody, and every change
/// of it is a write.
const TOO_MUCH: i64 = 2;
/// The least processor that is advised, in thousandths.
const LEAST_CPU: i64 = 10;
const MEBIBYTE: i64 = 1024 * 1024;
/// The least memory that is advised: below it a process's own ups and downs are all there is.
const LEAST_MEMORY: i64 = 16;

/// The advice for this use, keeping what was advised before while it still fits.
pub fn from_usage(usage: &[Usage], before: Option<&ResourceAdvice>) -> Option<ResourceAdvice> {
    let Some(largest_cpu) = usage.iter().map(|pod| pod.cpu_millis).max() else {
        return before.cloned();
    };
    let largest_memory = usage.iter().map(|pod| pod.memory_bytes).max().unwrap_or(0);
    let cpu = with_room(largest_cpu).max(LEAST_CPU);
    let memory = (with_room(largest_memory) / MEBIBYTE + 1).max(LEAST_MEMORY);
    let fits = |before: &&ResourceAdvice| {
        let read = |text: &str| text.parse::<Quantity>().ok();
        read(&before.cpu).is_some_and(|old| still_fits(old.milli_value(), largest_cpu, cpu))
            && read(&before.memory).is_some_and(|old| still_fits(old.value(), largest_memory, memory * MEBIBYTE))
    };
    if let Some(before) = before.filter(fits) {
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

/// Whether earlier advice covers the use and is not far too much.
fn still_fits(advised: i64, used: i64, wanted: i64) -> bool {
    used <= advised && advised <= wanted * TOO_MUCH
}
