//! Running many sequences on both servers at once, and telling the differences apart.

use super::compare::{Comparison, Difference, compare};
use super::generate;
use super::normal::normal;
use super::sequence::Sequence;
use super::shrink::shrink;
use super::side::{Answer, Side};
use crate::embedded;
use crate::kubernetes::{Kubernetes, Parts, StartError};
use futures::StreamExt;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Both servers. Everybody who compares shares them, each sequence in namespaces of its own.
#[derive(Clone)]
pub struct Judge {
    ours: Side,
    theirs: Side,
    /// Ends the real server when the last judge is gone.
    _real: Arc<Kubernetes>,
    namespaces: Arc<AtomicUsize>,
}

/// What to search.
#[derive(Debug, Clone)]
pub struct Search {
    pub seed: u64,
    pub sequences: Range<u64>,
    /// Sequences that run at the same time.
    pub parallel: usize,
    /// Differences of one sort that are shrunk; none are when it is zero.
    pub shrunk: usize,
}

/// A sort of difference, and the smallest sequence that shows it.
#[derive(Debug, Clone)]
pub struct Found {
    pub sort: String,
    pub differences: Vec<Difference>,
    pub sequence: Sequence,
    /// The number of the first sequence that showed it.
    pub first: u64,
    /// How many sequences showed it.
    pub count: usize,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Report {
    pub sequences: usize,
    pub requests: usize,
    /// Sequences that both servers answered alike.
    pub clean: usize,
    /// Sequences that differ only in what is documented.
    pub explained: usize,
    /// How many sequences showed what a row of `docs/compatibility.md` explains.
    pub rows: BTreeMap<&'static str, usize>,
    pub found: Vec<Found>,
}

impl Judge {
    /// Starts both servers.
    pub async fn start() -> Result<Judge, StartError> {
        let real = Kubernetes::start(Parts::Api).await?;
        let theirs = Side::new(real.client().await?);
        let ours = embedded::strict_client()
            .await
            .map_err(|error| StartError::Client(error.to_string()))?;
        Ok(Judge {
            ours: Side::new(ours),
            theirs,
            _real: Arc::new(real),
            namespaces: Arc::default(),
        })
    }

    /// Sends a sequence to both, and tells where the answers differ without an explanation.
    pub async fn differences(&self, sequence: &Sequence) -> Vec<Difference> {
        self.compare(sequence).await.differences
    }

    /// Compares a sequence, and again if its answers differ, so that only what always differs is told.
    pub async fn lasting(&self, sequence: &Sequence) -> Comparison {
        let mut found = self.compare(sequence).await;
        if !found.differences.is_empty() {
            let again = self.differences(sequence).await;
            let always = |difference: &Difference| again.iter().any(|other| other.sort == difference.sort);
            found.differences.retain(always);
        }
        found
    }

    /// Sends a sequence to both, and tells where the answers differ.
    pub async fn compare(&self, sequence: &Sequence) -> Comparison {
        let (ours, theirs) = self.answers(sequence).await;
        compare(sequence, &ours, &theirs)
    }

    /// Sends a sequence to both, and gives what they answer, ours first, without what differs by nature.
    pub async fn answers(&self, sequence: &Sequence) -> (Vec<Answer>, Vec<Answer>) {
        let namespace = format!("d{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let before = today();
        let (ours, theirs) = tokio::join!(
            self.ours.answers(sequence, &namespace),
            self.theirs.answers(sequence, &namespace)
        );
        if before != today() {
            // Times of two days cannot be told from those that a request names.
            return Box::pin(self.answers(sequence)).await;
        }
        (normal(sequence, &ours, &before), normal(sequence, &theirs, &before))
    }

    /// Runs the sequences of a search, and tells what always differs.
    pub async fn search(&self, search: &Search, progress: impl Fn(u64) + Sync) -> Report {
        let results = futures::stream::iter(search.sequences.clone())
            .map(|index| {
                let progress = &progress;
                async move {
                    let sequence = generate::sequence(search.seed, index);
                    let found = self.lasting(&sequence).await;
                    progress(index);
                    (index, sequence, found)
                }
            })
            .buffer_unordered(search.parallel)
            .collect::<Vec<_>>()
            .await;
        let mut report = Report::default();
        let mut sorts: BTreeMap<String, Found> = BTreeMap::new();
        for (index, sequence, comparison) in results {
            report.sequences += 1;
            report.requests += sequence.steps.len();
            let Comparison { differences, explained } = comparison;
            for row in &explained {
                *report.rows.entry(row).or_default() += 1;
            }
            let Some(first) = differences.first() else {
                match explained.is_empty() {
                    true => report.clean += 1,
                    false => report.explained += 1,
                }
                continue;
            };
            let sort = first.sort.clone();
            let found = sorts.entry(sort.clone()).or_insert(Found {
                sort,
                differences,
                sequence,
                first: index,
                count: 0,
            });
            found.count += 1;
        }
        report.found = sorts.into_values().collect();
        report.found.sort_by_key(|found| std::cmp::Reverse(found.count));
        let shrinking = report.found.iter_mut().take(search.shrunk).map(|found| async {
            found.sequence = shrink(self, found.sequence.clone(), &found.sort).await;
            let again = self.differences(&found.sequence).await;
            if !again.is_empty() {
                found.differences = again;
            }
        });
        futures::stream::iter(shrinking)
            .buffer_unordered(search.parallel)
            .collect::<Vec<_>>()
            .await;
        report
    }
}

fn today() -> String {
    let now = Timestamp::now().to_string();
    now.split('T').next().unwrap_or_default().to_string()
}
