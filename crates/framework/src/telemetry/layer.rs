//! Collects spans as the program runs through them.

use super::{Attribute, Finished, Happened};
use crate::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::Sender;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Lines of the log that are kept with one span.
const EVENTS_KEPT: usize = 32;
/// Characters of one value that are kept.
const LONGEST: usize = 1024;

/// A layer for `tracing_subscriber`; see [`layer`](super::layer).
pub struct Layer {
    sender: Sender<Finished>,
    dropped: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

impl Layer {
    pub(super) fn new(sender: Sender<Finished>, dropped: Arc<AtomicU64>, clock: Arc<dyn Clock>) -> Self {
        Layer { sender, dropped, clock }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            let parent = extensions.get::<Finished>()?;
            Some((parent.trace, parent.span))
        });
        let now = self.clock.now();
        let mut started = Finished {
            // Nobody else's identifiers are worth being the same: 0 is not allowed by the protocol.
            trace: parent.map_or_else(|| rand::random::<u128>().max(1), |(trace, _)| trace),
            span: rand::random::<u64>().max(1),
            parent: parent.map(|(_, span)| span),
            name: span.name(),
            start: now,
            end: now,
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        };
        attributes.record(&mut Fields(&mut started));
        span.extensions_mut().insert(started);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(started) = span.extensions_mut().get_mut::<Finished>() {
            values.record(&mut Fields(started));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else { return };
        let mut extensions = span.extensions_mut();
        let Some(started) = extensions.get_mut::<Finished>() else {
            return;
        };
        if started.events.len() < EVENTS_KEPT {
            let mut message = Message::default();
            event.record(&mut message);
            started.events.push(Happened {
                at: self.clock.now(),
                message: shorten(message.0),
                level: event.metadata().level().as_str(),
            });
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(mut finished) = span.extensions_mut().remove::<Finished>() else {
            return;
        };
        finished.end = self.clock.now();
        if self.sender.try_send(finished).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Fields of a span. The one called `error` says that it failed.
struct Fields<'a>(&'a mut Finished);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Attribute) {
        let known = self.0.attributes.iter_mut().find(|(name, _)| *name == field.name());
        match (known, value) {
            (_, Attribute::Text(why)) if field.name() == "error" => self.0.error = Some(why),
            (Some((_, known)), value) => *known = value,
            (None, value) => self.0.attributes.push((field.name(), value)),
        }
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Attribute::Text(shorten(value.to_owned())));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Attribute::Whole(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Attribute::Whole(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Attribute::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Attribute::Flag(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, Attribute::Text(shorten(format!("{value:?}"))));
    }
}

/// A line of the log: its message, and its fields behind it.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}

fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
    }
    text
}
