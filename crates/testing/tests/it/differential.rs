//! The embedded API server answers as the real one does.

use std::path::Path;
use stead_test::differential::{Judge, Search, Sequence};
use stead_test::kubernetes::StartError;

/// The seed that every change is tried with, and its first sequences.
const SEED: u64 = 1_360_004;
const SEQUENCES: u64 = 650;

/// Both servers, or `None` after saying that this test cannot run.
async fn judge() -> Option<Judge> {
    match Judge::start().await {
        Ok(judge) => Some(judge),
        Err(StartError::Missing(missing)) => {
            stead_test::skip::skipped(missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sequences that once showed a difference.
fn kept() -> Vec<(String, Sequence)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/differential/kept");
    let mut kept: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is part of the crate")
        .map(|file| {
            let path = file.expect("the folder can be read").path();
            let text = std::fs::read_to_string(&path).expect("a kept sequence can be read");
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, serde_json::from_str(&text).expect("a kept sequence is one"))
        })
        .collect();
    kept.sort_by(|(a, _), (b, _)| a.cmp(b));
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_answer_kept_and_generated_sequences_alike() {
    let Some(judge) = judge().await else { return };
    let mut wrong = Vec::new();
    for (name, sequence) in kept() {
        for difference in judge.lasting(&sequence).await.differences {
            wrong.push(format!("{name}: {difference}"));
        }
    }
    let search = Search {
        seed: SEED,
        sequences: 0..SEQUENCES,
        parallel: 48,
        shrunk: 0,
    };
    let report = judge.search(&search, |_| {}).await;
    for found in &report.found {
        for difference in &found.differences {
            wrong.push(format!("seed {SEED}, sequence {}: {difference}", found.first));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(report.clean + report.explained, report.sequences);
}
