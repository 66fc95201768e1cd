//! Health, readiness and version.

use super::body::Body;
use super::query::Query;
use super::respond;
use http::Response;
use serde_json::{Value, json};

/// The checks that kube-apiserver lists and that mean something here.
const CHECKS: [&str; 4] = ["ping", "log", "etcd", "poststarthook/start-apiextensions-controllers"];

/// `/healthz`, `/livez`, `/readyz` and the single checks below them.
pub fn answer(path: &str, query: &Query) -> Option<Response<Body>> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let endpoint = parts.next().unwrap_or_default();
    if !matches!(endpoint, "healthz" | "livez" | "readyz") {
        return None;
    }
    if let Some(check) = parts.next() {
        return Some(match CHECKS.contains(&check) {
            true => respond::text(200, "ok"),
            false => respond::text(404, "404 page not found\n"),
        });
    }
    if query.get("verbose").is_none() {
        return Some(respond::text(200, "ok"));
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let lines: String = CHECKS
        .iter()
        .map(|check| match excluded.contains(check) {
            true => format!("[+]{check} excluded: ok\n"),
            false => format!("[+]{check} ok\n"),
        })
        .collect();
    Some(respond::text(200, format!("{lines}{endpoint} check passed\n")))
}

/// `/version`: that of the Kubernetes release whose schemas are embedded.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.4+stead", "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
