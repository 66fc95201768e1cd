//! Counters, gauges and histograms, and the text in which Prometheus reads them.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

/// A number that goes up and down.
#[derive(Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

/// A distribution over fixed buckets.
#[derive(Clone)]
pub struct Histogram(Arc<Distribution>);

struct Distribution {
    bounds: &'static [f64],
    /// One more than bounds: the last counts everything beyond.
    counts: Vec<AtomicU64>,
    sum: Gauge,
}

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// For counters that are kept elsewhere and read when metrics are asked for.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl Gauge {
    /// It is so much now.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// So much more, or less.
    pub fn add(&self, value: f64) {
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The closure never refuses, so neither does the update.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// How much.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Histogram(Arc::new(Distribution {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: Gauge::default(),
        }))
    }

    /// One more value.
    pub fn observe(&self, value: f64) {
        let bucket = self.0.bounds.partition_point(|bound| *bound < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.add(value);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Series {
    fn type_name(&self) -> &'static str {
        match self {
            Series::Counter(_) => "counter",
            Series::Gauge(_) => "gauge",
            Series::Histogram(_) => "histogram",
        }
    }
}

struct Family {
    help: &'static str,
    /// By labels, as they are printed.
    series: BTreeMap<String, Series>,
}

/// Every metric of a process.
#[derive(Default)]
pub struct Registry {
    families: Mutex<BTreeMap<&'static str, Family>>,
    /// Asked before each scrape, to bring gauges up to date.
    readers: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl Registry {
    /// The counter with this name and these labels; made if it is not there.
    pub fn counter(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        match self.series(name, help, labels, || Series::Counter(Counter::default())) {
            Series::Counter(counter) => counter,
            // A name of another type: measured into the void rather than printed wrongly.
            Series::Gauge(_) | Series::Histogram(_) => Counter::default(),
        }
    }

    /// The gauge with this name and these labels; made if it is not there.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Gauge {
        match self.series(name, help, labels, || Series::Gauge(Gauge::default())) {
            Series::Gauge(gauge) => gauge,
            Series::Counter(_) | Series::Histogram(_) => Gauge::default(),
        }
    }

    /// The histogram with this name and these labels; made if it is not there.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        bounds: &'static [f64],
    ) -> Histogram {
        match self.series(name, help, labels, || Series::Histogram(Histogram::new(bounds))) {
            Series::Histogram(histogram) => histogram,
            Series::Counter(_) | Series::Gauge(_) => Histogram::new(bounds),
        }
    }

    /// Forgets every series of a name but those with these labels: what is gone must not be shown for ever.
    pub fn keep_only<'a>(&self, name: &str, labels: impl Iterator<Item = Vec<(&'a str, &'a str)>>) {
        let wanted: BTreeSet<String> = labels.map(|labels| print_labels(&labels)).collect();
        if let Some(family) = self.families.lock().get_mut(name) {
            family.series.retain(|printed, _| wanted.contains(printed));
        }
    }

    /// Calls a function before each rendering.
    pub fn before_render(&self, reader: impl Fn() + Send + Sync + 'static) {
        self.readers.lock().push(Arc::new(reader));
    }

    fn series(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        make: impl FnOnce() -> Series,
    ) -> Series {
        let mut families = self.families.lock();
        let family = families.entry(name).or_insert_with(|| Family {
            help,
            series: BTreeMap::new(),
        });
        let series = family.series.entry(print_labels(labels)).or_insert_with(make);
        match series {
            Series::Counter(counter) => Series::Counter(counter.clone()),
            Series::Gauge(gauge) => Series::Gauge(gauge.clone()),
            Series::Histogram(histogram) => Series::Histogram(histogram.clone()),
        }
    }

    /// The text format that Prometheus reads.
    pub fn render(&self) -> String {
        let readers = self.readers.lock().clone();
        for reader in readers {
            reader();
        }
        let mut text = String::new();
        for (name, family) in self
            .families
            .lock()
            .iter()
            .filter(|(_, family)| !family.series.is_empty())
        {
            let type_name = family.series.values().next().map_or("untyped", Series::type_name);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {type_name}", family.help);
            for (labels, series) in &family.series {
                render(&mut text, name, labels, series);
            }
        }
        text
    }
}

fn render(text: &mut String, name: &str, labels: &str, series: &Series) {
    let braces = |labels: &str| match labels.is_empty() {
        true => String::new(),
        false => format!("{{{labels}}}"),
    };
    // Writing to a string cannot fail, so the results say nothing.
    let _ = match series {
        Series::Counter(counter) => writeln!(text, "{name}{} {}", braces(labels), counter.get()),
        Series::Gauge(gauge) => writeln!(text, "{name}{} {}", braces(labels), gauge.get()),
        Series::Histogram(histogram) => {
            let distribution = &histogram.0;
            let comma = if labels.is_empty() { "" } else { "," };
            let mut sum = 0;
            for (position, count) in distribution.counts.iter().enumerate() {
                sum += count.load(Ordering::Relaxed);
                let bound = distribution
                    .bounds
                    .get(position)
                    .map_or("+Inf".to_owned(), f64::to_string);
                let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {sum}");
            }
            let _ = writeln!(text, "{name}_sum{} {}", braces(labels), distribution.sum.get());
            writeln!(text, "{name}_count{} {sum}", braces(labels))
        }
    };
}

fn print_labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (position, (label, value)) in labels.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{label}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let registry = Registry::default();
        registry.counter("c_total", "Counts.", &[("a", "x\"y")]).increment();
        registry.histogram("h", "Spreads.", &[], &[0.5, 1.0]).observe(0.7);
        assert_eq!(
            registry.render(),
            "# HELP c_total Counts.\n# TYPE c_total counter\nc_total{a=\"x\\\"y\"} 1\n\
             # HELP h Spreads.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 0\nh_bucket{le=\"1\"} 1\n\
             h_bucket{le=\"+Inf\"} 1\nh_sum 0.7\nh_count 1\n"
        );
    }
}
