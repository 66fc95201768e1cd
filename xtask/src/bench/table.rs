//! The results as a Markdown table, as `docs/benchmarks.md` keeps it.

use super::work::{Plan, Results};
use std::fmt::Write;
use std::time::Duration;

/// Whether a ratio says how many times less, or how many times more.
#[derive(Clone, Copy)]
pub enum Better {
    Less,
    More,
}

pub fn render(plan: &Plan, ours: &Results, theirs: Option<&Results>) -> String {
    let mut table = Table {
        text: "| | stead | kube-apiserver + etcd | ratio |\n|---|---|---|---|\n".to_string(),
        ours,
        theirs,
    };
    let Plan { objects, pods, .. } = plan;
    let mib = |bytes: f64| format!("{:.0} MiB", bytes / (1 << 20) as f64);
    let each = |micros: f64| format!("{micros:.0} us");
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    table.row(
        "processor time for all of the work below",
        Better::Less,
        |r| r.processor,
        |s| format!("{s:.1} s"),
    );
    table.row("ready to serve", Better::Less, |r| r.ready.as_secs_f64(), ms);
    table.row("idle memory", Better::Less, |r| r.idle as f64, mib);
    let name = format!("creates a second ({objects} ConfigMaps)");
    table.row(&name, Better::More, |r| r.creates.per_second, |n| format!("{n:.0}"));
    table.row(
        "processor time of a create",
        Better::Less,
        |r| micros(r.creates.processor_each),
        each,
    );
    table.row(
        "gets a second",
        Better::More,
        |r| r.gets.per_second,
        |n| format!("{n:.0}"),
    );
    table.row(
        "processor time of a get",
        Better::Less,
        |r| micros(r.gets.processor_each),
        each,
    );
    table.row(
        "processor time of an apply that changes nothing",
        Better::Less,
        |r| micros(r.applies.0[0].processor_each),
        each,
    );
    table.row(
        "the same, as a multiple of a get of the object",
        Better::Less,
        |r| micros(r.applies.0[0].processor_each) / micros(r.applies.1.processor_each),
        |times| format!("{times:.1}"),
    );
    table.row(
        "the same, when it is sent again",
        Better::Less,
        |r| micros(r.applies.0[1].processor_each) / micros(r.applies.1.processor_each),
        |times| format!("{times:.1}"),
    );
    table.row(
        "what fifty rules add to a create of a custom resource",
        Better::Less,
        |r| micros(r.customs.1.processor_each) - micros(r.customs.0.processor_each),
        each,
    );
    table.row(
        &format!("list of {pods} pods"),
        Better::Less,
        |r| r.list.took.as_secs_f64(),
        ms,
    );
    table.row("bytes of that list", Better::Less, |r| r.list.bytes as f64, mib);
    table.row("memory spike while listing", Better::Less, |r| r.list.spike as f64, mib);
    table.row(
        "updates a second with 100 watchers",
        Better::More,
        |r| r.watch.updates_per_second,
        |n| format!("{n:.0}"),
    );
    table.row(
        "median delay to a watcher",
        Better::Less,
        |r| r.watch.median.as_secs_f64(),
        ms,
    );
    table.row(
        "99th percentile delay to a watcher",
        Better::Less,
        |r| r.watch.p99.as_secs_f64(),
        ms,
    );
    if table.theirs.is_some_and(|theirs| theirs.watch.ended > 0) || ours.watch.ended > 0 {
        let plain = |n: f64| format!("{n:.0}");
        table.row(
            "watches ended as too slow",
            Better::Less,
            |r| r.watch.ended as f64,
            plain,
        );
    }
    let mut text = table.text;
    if !ours.filled.is_empty() {
        text.push_str("\n| objects stored | creates a second | processor time of a create |\n|---|---|---|\n");
        for filled in &ours.filled {
            let (objects, rate) = (filled.objects, filled.rate);
            let cost = micros(rate.processor_each);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {objects} | {:.0} | {cost:.0} us |", rate.per_second);
        }
    }
    text
}

struct Table<'a> {
    text: String,
    ours: &'a Results,
    theirs: Option<&'a Results>,
}

impl Table<'_> {
    fn row(&mut self, name: &str, better: Better, value: impl Fn(&Results) -> f64, show: impl Fn(f64) -> String) {
        let ours = value(self.ours);
        let (theirs, ratio) = compared(better, ours, self.theirs.map(value), &show);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "| {name} | {} | {theirs} | {ratio} |", show(ours));
    }
}

/// The other's cell and the ratio's: how many times better ours is.
pub fn compared(better: Better, ours: f64, theirs: Option<f64>, show: impl Fn(f64) -> String) -> (String, String) {
    let Some(theirs) = theirs else {
        return ("not measured".to_string(), String::new());
    };
    let ratio = match better {
        Better::Less => theirs / ours,
        Better::More => ours / theirs,
    };
    let ratio = if ratio.is_finite() {
        format!("{ratio:.1} x")
    } else {
        String::new()
    };
    (show(theirs), ratio)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
