//! Saying that a test cannot run here, where a person sees it.

use std::fmt::Display;
use std::io::Write;

/// Writes `skipped: why` to the terminal. The test harness captures what the print macros write, and a test
/// that is skipped in silence looks like one that passed.
pub fn skipped(why: impl Display) {
    // Nothing to do if even standard error is gone.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
