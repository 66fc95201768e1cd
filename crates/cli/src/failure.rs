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

/// A command line that cannot be meant so, where only its parts together show it.
#[derive(Debug)]
struct Misuse(String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// Refuses a command line. Scripts tell this from a failure by the exit code.
pub fn misuse<T>(what: impl Into<String>, hint: impl Into<String>) -> anyhow::Result<T> {
    Err(Misuse(what.into())).hint(hint)
}

/// Whether an error is about the command line, and not about the world.
pub fn is_misuse(error: &anyhow::Error) -> bool {
    let hinted = error.chain().find_map(|cause| cause.downcast_ref::<Hinted>());
    hinted.is_some_and(|hinted| hinted.source.is::<Misuse>())
}

/// Whoever reads standard output has read enough, as `head` does. No other closed connection is meant.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output")
    }
}

impl std::error::Error for ReaderGone {}

/// Whether a command ended because nobody wanted to know more: no failure, and nothing to tell.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.is::<ReaderGone>()
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
        f.write_str(&told(&self.source))
    }
}

/// The causes of an error on one line. Of an answer of the API server what it says to people is enough: the client would
/// print all the rest of it too.
pub fn told(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref::<kube::Error>() {
            parts.push(status.message.clone());
            break;
        }
        parts.push(cause.to_string());
    }
    parts.join(": ")
}

// The source is not given out: it is printed already, and would be printed twice.
impl std::error::Error for Hinted {}

/// The error on one line, and its hint.
pub fn describe(error: &anyhow::Error) -> (String, Option<String>) {
    let hint = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Hinted>())
        .map(|hinted| hinted.hint.clone());
    (told(error), hint)
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
        assert!(!is_misuse(&error));
    }

    #[test]
    fn of_an_answer_of_the_api_server_only_the_sentence_is_told() {
        let answer = kube::core::Status::failure("webapps.stead.dev \"shop\" not found", "NotFound").with_code(404);
        let failed: anyhow::Result<()> = Err(kube::Error::Api(Box::new(answer)))
            .context("cannot read webapp shop")
            .hint("look again");
        let (text, _) = describe(&failed.expect_err("an error"));
        assert_eq!(text, "cannot read webapp shop: webapps.stead.dev \"shop\" not found");
    }

    #[test]
    fn a_wrong_command_line_is_told_from_a_failure() {
        let refused: anyhow::Result<()> = misuse("nothing to run", "name a part");
        let error = refused.context("cannot start").expect_err("an error");
        assert!(is_misuse(&error));
        let (text, hint) = describe(&error);
        assert_eq!(
            (text.as_str(), hint.as_deref()),
            ("cannot start: nothing to run", Some("name a part"))
        );
    }
}
