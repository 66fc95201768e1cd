//! Spans as the protocol wants them: OTLP's JSON, with identifiers in hexadecimal digits and times in nanoseconds.

use super::{Attribute, Finished, Settings};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The status code of a span that failed.
const FAILED: u8 = 2;
/// A span that is neither a client's nor a server's.
const INTERNAL: u8 = 1;

/// The body of one request.
pub(super) fn batch(settings: &Settings, spans: &[Finished], dropped: u64) -> Value {
    let mut resource = vec![text("service.name", &settings.service)];
    resource.extend(settings.instance.iter().map(|name| text("service.instance.id", name)));
    if dropped > 0 {
        let dropped = i64::try_from(dropped).unwrap_or(i64::MAX);
        resource.push(attribute("stead.spans.dropped", &Attribute::Whole(dropped)));
    }
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{
            "scope": {"name": "stead", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }]})
}

fn span(span: &Finished) -> Value {
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(name, value)| attribute(name, value))
        .collect();
    let events: Vec<Value> = span
        .events
        .iter()
        .map(|event| {
            json!({
                "timeUnixNano": nanoseconds(event.at),
                "name": event.message,
                "attributes": [text("level", event.level)],
            })
        })
        .collect();
    let mut encoded = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.span),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes,
        "events": events,
        "status": {},
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    if let Some(why) = &span.error {
        encoded["status"] = json!({"code": FAILED, "message": why});
    }
    encoded
}

/// 64-bit numbers are texts in this JSON.
fn nanoseconds(at: Timestamp) -> String {
    at.as_nanosecond().max(0).to_string()
}

fn text(name: &str, value: &str) -> Value {
    attribute(name, &Attribute::Text(value.to_owned()))
}

fn attribute(name: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Whole(number) => json!({"intValue": number.to_string()}),
        Attribute::Float(number) => json!({"doubleValue": number}),
        Attribute::Flag(flag) => json!({"boolValue": flag}),
    };
    json!({"key": name, "value": value})
}
