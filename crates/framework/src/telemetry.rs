//! Traces for OpenTelemetry: every reconcile is a span, with its requests inside it.
//!
//! The protocol is OTLP over HTTP with JSON, which every collector takes. It is written by hand (see
//! docs/decisions/0073): a layer for `tracing` that collects spans, and a task that sends them. Nothing waits for it:
//! spans that do not fit are dropped and counted, and a collector that is down costs one line in the log.
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt;
//! # async fn example() -> Result<(), stead::telemetry::EndpointError> {
//! let settings = stead::telemetry::Settings::new("http://127.0.0.1:4318", "my-operator");
//! let (layer, exporter) = stead::telemetry::layer(settings, stead::clock::system())?;
//! let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
//! tokio::spawn(exporter.run(std::future::pending()));
//! # Ok(())
//! # }
//! ```

mod encode;
mod export;
mod layer;

pub use export::Exporter;
pub use layer::Layer;

use crate::clock::Clock;
use http::Uri;
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::mpsc;

/// Spans that may wait to be sent.
const WAITING: usize = 4096;

/// Where traces go, and whose they are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector, as `http://HOST:PORT`; the path `/v1/traces` is added.
    pub endpoint: String,
    /// The name of the program.
    pub service: String,
    /// The name of this replica.
    pub instance: Option<String>,
}

impl Settings {
    /// Traces of a program, to a collector.
    pub fn new(endpoint: &str, service: &str) -> Self {
        Settings {
            endpoint: endpoint.to_owned(),
            service: service.to_owned(),
            instance: None,
        }
    }

    /// What the usual variables of the environment say: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, and `OTEL_SERVICE_NAME`. None, if no collector is named.
    pub fn from_environment(service: &str, get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let said = |name| get(name).filter(|value| !value.is_empty());
        let endpoint = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| said("OTEL_EXPORTER_OTLP_ENDPOINT"))?;
        let service = said("OTEL_SERVICE_NAME").unwrap_or_else(|| service.to_owned());
        Some(Settings::new(&endpoint, &service))
    }
}

/// A collector that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is not a URL.
    #[error("`{0}` is not a URL of the form http://HOST:PORT")]
    Nonsense(String),
    /// Traces go to a collector beside the program, which sends them on.
    #[error(
        "`{0}` is not plain http: send traces to a collector on this machine or in this cluster, which encrypts them"
    )]
    NotPlain(String),
}

/// A layer that collects spans, and what sends them.
pub fn layer(settings: Settings, clock: Arc<dyn Clock>) -> Result<(Layer, Exporter), EndpointError> {
    let nonsense = || EndpointError::Nonsense(settings.endpoint.clone());
    let uri: Uri = settings.endpoint.parse().map_err(|_| nonsense())?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(EndpointError::NotPlain(settings.endpoint)),
        _ => return Err(nonsense()),
    }
    let host = uri.host().ok_or_else(nonsense)?.to_owned();
    let address = (host, uri.port_u16().unwrap_or(4318));
    let path = match uri.path().trim_end_matches('/') {
        path if path.ends_with("/v1/traces") => path.to_owned(),
        path => format!("{path}/v1/traces"),
    };
    let (sender, receiver) = mpsc::channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    let layer = Layer::new(sender, dropped.clone(), clock);
    Ok((layer, Exporter::new(receiver, dropped, settings, address, path)))
}

/// A span that has ended.
#[derive(Debug)]
struct Finished {
    trace: u128,
    span: u64,
    parent: Option<u64>,
    name: &'static str,
    start: Timestamp,
    end: Timestamp,
    attributes: Vec<(&'static str, Attribute)>,
    events: Vec<Happened>,
    /// What went wrong, if something did.
    error: Option<String>,
}

/// Something that happened within a span: a line of the log.
#[derive(Debug)]
struct Happened {
    at: Timestamp,
    message: String,
    level: &'static str,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
enum Attribute {
    Text(String),
    Whole(i64),
    Float(f64),
    Flag(bool),
}

#[cfg(test)]
mod tests;
