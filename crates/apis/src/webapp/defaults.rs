//! The values that stand for what a WebApp does not say.
//!
//! They are in the CRD's schema, so the API server fills them in with or without our webhook.

pub fn replicas() -> i32 {
    1
}

pub fn history() -> i32 {
    10
}

pub fn path() -> String {
    "/".to_string()
}

pub fn metrics_path() -> String {
    "/metrics".to_string()
}

pub fn scrape_interval() -> i32 {
    30
}

/// Kubernetes' own default for a Deployment.
pub fn deadline() -> i32 {
    600
}

pub fn restarts() -> i32 {
    2
}

pub fn pause() -> i32 {
    60
}

pub fn code_label() -> String {
    "code".to_string()
}

pub fn time_zone() -> String {
    "UTC".to_string()
}

/// Long enough that a slow garbage collection or a restart of a dependency does not trigger it.
pub fn restart_after() -> i32 {
    300
}
