//! What can go wrong in a reconcile, and the class that decides what happens next.
//!
//! The class alone drives retries and metrics. Nobody matches on messages.

use crate::key::Key;
use crate::kind::Kind;
use std::time::Duration;

/// Who has to do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// It goes away by itself: the network, a busy server, a quota. Retried with backoff.
    Transient,
    /// Somebody else was faster. Retried at once with fresh state, a few times, then with backoff.
    Conflict,
    /// The user has to change something: a spec, a permission, a name. Retried rarely, and at once when the
    /// spec changes.
    UserMistake,
    /// Our own mistake, a panic for example. Counted, logged loudly, retried with backoff.
    Bug,
}

/// A failed reconcile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("cannot {what}: {}", describe(source))]
    Api {
        /// What was attempted, as "create Deployment shop/web".
        what: String,
        /// What came back, or did not.
        source: kube::Error,
    },
    /// The write was not sent, because another process leads now.
    #[error("cannot {what}: this process does not lead any more")]
    NotLeader {
        /// What was attempted, as "create Deployment shop/web".
        what: String,
    },
    /// An object with the wanted name exists and belongs to somebody else.
    #[error("{kind} {key} exists and is {owner}; it is left alone. Rename or delete it")]
    NotOurs {
        /// The kind of the object.
        kind: Box<Kind>,
        /// Its name.
        key: Key,
        /// Whose it is, in words.
        owner: String,
    },
    /// The same write was made again and again.
    #[error(
        "{kind} {key} was written the same way again and again; waiting before the next attempt. Somebody undoes it, \
         or its plan changes with every look"
    )]
    HotLoop {
        /// The kind of the object.
        kind: Box<Kind>,
        /// Its name.
        key: Key,
    },
    /// The object was deleted, or deleted and created again, while a reconcile ran.
    #[error("{kind} {key} is not the object any more that this reconcile started with")]
    Superseded {
        /// The kind of the object.
        kind: Box<Kind>,
        /// Its name.
        key: Key,
    },
    /// The reconcile took longer than the controller allows.
    #[error("the reconcile took longer than {0:?} and was cancelled")]
    Timeout(Duration),
    /// The reconcile panicked.
    #[error("the reconcile panicked: {0}")]
    Panic(String),
    /// An object does not decode as its type.
    #[error("{kind} {key} cannot be read: {message}")]
    Undecodable {
        /// The kind of the object.
        kind: Box<Kind>,
        /// Its name.
        key: Key,
        /// What is wrong with it.
        message: String,
    },
    /// The spec asks for something impossible.
    #[error("{0}")]
    Invalid(String),
    /// Anything else, with the class that its author gave it.
    #[error("{message}")]
    Other {
        /// Who has to do something about it.
        class: Class,
        /// What happened.
        message: String,
        /// What caused it.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl Error {
    /// An answer of the API server to an attempt to `what`, as "create Deployment shop/web".
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        if let kube::Error::Service(inner) = &source
            && inner.is::<crate::leader::NotLeader>()
        {
            return Error::NotLeader { what: what.into() };
        }
        Error::Api {
            what: what.into(),
            source,
        }
    }

    /// An error of a class, in words.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Error::Other {
            class,
            message: message.into(),
            source: None,
        }
    }

    /// An error of a class, with what caused it.
    pub fn caused(
        class: Class,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Other {
            class,
            message: message.into(),
            source: Some(source.into()),
        }
    }

    /// An error that goes away by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Error::new(Class::Transient, message)
    }

    /// What the framework does about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Api { source, .. } => class_of(source),
            Error::NotLeader { .. } | Error::Timeout(_) => Class::Transient,
            Error::Superseded { .. } => Class::Conflict,
            Error::NotOurs { .. } | Error::Undecodable { .. } | Error::Invalid(_) => Class::UserMistake,
            Error::Panic(_) | Error::HotLoop { .. } => Class::Bug,
            Error::Other { class, .. } => *class,
        }
    }

    /// A reason for conditions and events: one CamelCase word that stays the same from run to run.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Api { source, .. } => match status_of(source) {
                Some(status) if is_quota(status) => "QuotaExceeded",
                Some(status) if is_terminating(status) => "NamespaceTerminating",
                Some(status) if status.code == 403 => "Forbidden",
                Some(status) if status.code == 422 || status.code == 400 => "Rejected",
                Some(status) if status.code == 409 => "Conflict",
                Some(status) if status.code == 429 => "TooManyRequests",
                Some(_) => "ApiError",
                None => "ApiUnreachable",
            },
            Error::NotLeader { .. } => "NotLeader",
            Error::NotOurs { .. } => "NameTaken",
            Error::HotLoop { .. } => "HotLoop",
            Error::Superseded { .. } => "Superseded",
            Error::Timeout(_) => "Timeout",
            Error::Panic(_) => "Panic",
            Error::Undecodable { .. } => "Undecodable",
            Error::Invalid(_) => "InvalidSpec",
            Error::Other { class, .. } => match class {
                Class::Transient => "Failed",
                Class::Conflict => "Conflict",
                Class::UserMistake => "InvalidSpec",
                Class::Bug => "InternalError",
            },
        }
    }

    /// The server's own words where it refused, without what was attempted: for messages whose readers know that.
    pub fn words(&self) -> String {
        match self {
            Error::Api { source, .. } => describe(source),
            other => other.to_string(),
        }
    }

    /// How long the server asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        let Error::Api { source, .. } = self else { return None };
        let seconds = status_of(source)?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Whether the API server said that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Api { source, .. } if status_of(source).is_some_and(|status| status.code == 404))
    }

    /// Whether the API server refused to change a field that cannot be changed. It has no reason of its own for
    /// that, only these words.
    pub fn is_immutable(&self) -> bool {
        const WORDS: &[&str] = &["immutable", "may not change once set", "are forbidden"];
        let Error::Api { source, .. } = self else { return false };
        status_of(source)
            .is_some_and(|status| status.code == 422 && WORDS.iter().any(|words| status.message.contains(words)))
    }

    /// Whether the API server said that somebody else was faster.
    pub fn is_conflict(&self) -> bool {
        self.class() == Class::Conflict
    }
}

/// What the server answered, if it answered.
pub(crate) fn status_of(error: &kube::Error) -> Option<&kube::core::Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

fn class_of(error: &kube::Error) -> Class {
    let Some(status) = status_of(error) else {
        return match error {
            kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => Class::Bug,
            _ => Class::Transient,
        };
    };
    match status.code {
        409 => Class::Conflict,
        // A quota is freed and a namespace ends without anybody touching our object.
        403 if is_quota(status) || is_terminating(status) => Class::Transient,
        400 | 401 | 403 | 405 | 413 | 415 | 422 => Class::UserMistake,
        _ => Class::Transient,
    }
}

fn is_quota(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("exceeded quota")
}

fn is_terminating(status: &kube::core::Status) -> bool {
    let cause = |details: &kube::core::response::StatusDetails| {
        details
            .causes
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
    };
    status.code == 403
        && (status.details.as_ref().is_some_and(cause) || status.message.contains("because it is being terminated"))
}

/// The server's own words where there are any: kube wraps them in its own.
fn describe(error: &kube::Error) -> String {
    match status_of(error) {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        Some(status) => format!("HTTP {} {}", status.code, status.reason),
        None => error.to_string(),
    }
}
