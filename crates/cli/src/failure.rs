//! What goes wrong, and what to do about it.
//!
//! Every error that a user can cause or cure carries a hint; it travels inside the error, so that the code
//! in between need not know of it.

use std::fmt;

/// An error with a way out.
#[derive(Debug)]
pub struct Hinted {
    source: anyhow::Error,
    hint: String,
}

/// Adds a hint to an error.
pub trait Hint<T> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Hint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|source| {
            anyhow::Error::new(Hinted {
                source: source.into(),
                hint: hint.into(),
            })
        })
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.source)
    }
}

// The source is not given out: it is printed already, and would be printed twice.
impl std::error::Error for Hinted {}

/// The error on one line, and its hint.
pub fn describe(error: &anyhow::Error) -> (String, Option<String>) {
    let hint = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Hinted>())
        .map(|hinted| hinted.hint.clone());
    (format!("{error:#}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_hint_survives_added_context_and_the_cause_is_told_once() {
        let failed: anyhow::Result<()> = Err(std::io::Error::other("disk full"))
            .context("cannot write x")
            .hint("make room");
        let error = failed.context("cannot start").expect_err("an error");
        let (text, hint) = describe(&error);
        assert_eq!(text, "cannot start: cannot write x: disk full");
        assert_eq!(hint.as_deref(), Some("make room"));
    }
}
