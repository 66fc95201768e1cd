//! The options of list and watch, checked as Kubernetes checks them.

use super::selection::Selection;
use crate::catalogue::Resource;
use crate::error::{ApiError, Result};
use crate::server::query::Query;
use crate::store::Revision;
use std::time::Duration;
use stead_machinery::field::FieldError;

/// What a list or watch asks for.
#[derive(Debug, Clone)]
pub struct ListOptions {
    pub selection: Selection,
    pub version: Version,
    pub limit: Option<usize>,
    /// Empty on the first page.
    pub continuation: String,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout: Option<Duration>,
}

/// The state that a list is read at, or a watch starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Nothing said: the most recent.
    Unset,
    /// `0`: whatever is at hand.
    Any,
    Exact(Revision),
    NotOlderThan(Revision),
}

impl ListOptions {
    pub fn parse(resource: &Resource, query: &Query, watch: Watching) -> Result<Self> {
        let limit = query.integer("limit")?;
        let timeout = query.integer("timeoutSeconds")?;
        let send_initial_events = query.flag("sendInitialEvents");
        let selection = Selection::parse(query)?;
        let errors = match watch {
            Watching::No => list_errors(query, send_initial_events),
            Watching::Yes => watch_errors(query, send_initial_events),
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        let limited = limit.is_some_and(|limit| limit > 0);
        let continuation = query.text("continue").to_string();
        Ok(ListOptions {
            selection: selection.checked(resource)?,
            version: version(query, limited && continuation.is_empty(), watch)?,
            limit: limit
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| *limit > 0),
            continuation,
            bookmarks: query.is_true("allowWatchBookmarks"),
            send_initial_events,
            timeout: timeout
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds).min(LONGEST_TIMEOUT)),
        })
    }
}

/// No watch or list takes longer, whatever is asked for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Whether the options are those of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    No,
    Yes,
}

fn version(query: &Query, limited: bool, watch: Watching) -> Result<Version> {
    let text = query.text("resourceVersion");
    let revision = match text {
        "" => return Ok(Version::Unset),
        "0" => return Ok(Version::Any),
        // No version goes together with a page, so nobody reads which one it is.
        _ if !query.text("continue").is_empty() && watch == Watching::No => return Ok(Version::Exact(Revision(0))),
        text => parse_revision(text).map_err(|error| match watch {
            Watching::No => ApiError::bad_request(format!("invalid resource version: {}", error.message)),
            Watching::Yes => error,
        })?,
    };
    Ok(match query.text("resourceVersionMatch") {
        "Exact" => Version::Exact(revision),
        "NotOlderThan" => Version::NotOlderThan(revision),
        // The first page of a list at a version has always meant exactly that version.
        _ if limited => Version::Exact(revision),
        _ => Version::NotOlderThan(revision),
    })
}

/// Reads a resourceVersion that a client sent.
pub fn parse_revision(text: &str) -> Result<Revision> {
    text.parse().map(Revision).map_err(|_| {
        let error = FieldError::invalid(
            "resourceVersion",
            text,
            format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
        );
        // Kubernetes lets this one through as an error that it has no name for.
        ApiError::new(500, "", error.to_string())
    })
}

fn list_errors(query: &Query, send_initial_events: Option<bool>) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    let matched = query.text(FIELD);
    if !matched.is_empty() {
        if query.text("resourceVersion").is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !query.text("continue").is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matched, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(
                FIELD,
                matched,
                &["Exact", "NotOlderThan", ""],
            ));
        }
        if matched == "Exact" && query.text("resourceVersion") == "0" {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if send_initial_events.is_some() {
        errors.push(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    errors
}

fn watch_errors(query: &Query, send_initial_events: Option<bool>) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    let matched = query.text(FIELD);
    if send_initial_events.is_some() && matched != "NotOlderThan" {
        errors.push(FieldError::forbidden(
            FIELD,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if !matched.is_empty() {
        if send_initial_events.is_none() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if matched != "NotOlderThan" {
            errors.push(FieldError::not_supported(FIELD, matched, &["NotOlderThan"]));
        }
        if !query.text("continue").is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    errors
}
