//! Sequences of requests from a seed.
//!
//! A sequence is about one kind of object, built-in or custom, because mistakes show where requests meet on the
//! same objects. Most requests make sense; a request that is refused at once tests little more than the refusal.

mod custom;
mod kinds;
mod nonsense;
mod reads;
mod rules;
mod schemas;
mod writes;

use super::sequence::{Sequence, Step, put};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The sequence with this number, of this seed: always the same.
pub fn sequence(seed: u64, index: u64) -> Sequence {
    // Two odd constants, so that neighbouring seeds share no sequences.
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.wrapping_mul(0xd134_2543_de82_ef95);
    let mut story = Story::new(StdRng::seed_from_u64(mixed));
    let subject = match story.one_in(3) {
        true => custom::subject(&mut story),
        false => kinds::subject(&mut story),
    };
    let requests = story.rng.random_range(5..12);
    for _ in 0..requests {
        request(&mut story, &subject);
    }
    reads::ending(&mut story, &subject);
    Sequence {
        about: String::new(),
        steps: story.steps,
    }
}

fn request(story: &mut Story, subject: &Subject) {
    match story.rng.random_range(0..100) {
        0..18 => writes::create(story, subject),
        18..30 => writes::update(story, subject),
        30..38 => writes::merge_patch(story, subject),
        38..45 => writes::json_patch(story, subject),
        45..52 => writes::strategic_patch(story, subject),
        52..68 => writes::apply(story, subject),
        68..76 => writes::subresource(story, subject),
        76..82 => writes::delete(story, subject),
        82..93 => reads::read(story, subject),
        _ => nonsense::request(story, subject),
    }
}

/// What a sequence is about: one kind, and what its objects may look like.
#[derive(Debug, Clone)]
struct Subject {
    api_version: String,
    kind: String,
    /// The path of all objects of the sequence.
    collection: String,
    namespaced: bool,
    /// A valid object without metadata.
    base: Value,
    /// JSON pointers, and what may stand there, good and bad.
    fields: Vec<(String, Vec<Value>)>,
    /// Of these, those under `status`.
    status: Vec<(String, Vec<Value>)>,
    subresources: Vec<String>,
    field_selectors: Vec<String>,
    /// The step whose version all watches can begin at.
    since: u32,
}

/// A sequence while it is made.
struct Story {
    rng: StdRng,
    steps: Vec<Step>,
    next: u32,
    /// The newest step whose answer may hold the object of this name.
    newest: BTreeMap<String, u32>,
}

impl Story {
    fn new(rng: StdRng) -> Self {
        Story {
            rng,
            steps: Vec::new(),
            next: 1,
            newest: BTreeMap::new(),
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.rng.random_range(0..from.len())]
    }

    fn word(&mut self, from: &[&str]) -> String {
        (*self.pick(from)).to_string()
    }

    /// Adds a step, and gives its number.
    fn step(&mut self, mut step: Step) -> u32 {
        step.id = self.next;
        self.next += 1;
        self.steps.push(step);
        self.next - 1
    }

    /// Adds a step whose answer is the object of this name.
    fn write(&mut self, name: &str, step: Step) {
        let id = self.step(step);
        self.newest.insert(name.to_string(), id);
    }

    /// The name of an object of the sequence. Those of cluster-scoped kinds are the sequence's own.
    fn name(&mut self, subject: &Subject) -> String {
        let name = self.word(&["a", "a", "a", "b", "b", "c.d"]);
        match subject.namespaced {
            true => name,
            false => format!("{{ns}}-{name}"),
        }
    }

    /// Some of what a subject's objects may look like.
    fn choose(&mut self, fields: &[(String, Vec<Value>)], most: usize) -> BTreeMap<String, Value> {
        let mut chosen = BTreeMap::new();
        if fields.is_empty() {
            return chosen;
        }
        for _ in 0..self.rng.random_range(0..=most) {
            let (pointer, values) = self.pick(fields);
            let value = self.pick(values).clone();
            chosen.insert(pointer.clone(), value);
        }
        chosen
    }

    /// A new object.
    fn object(&mut self, subject: &Subject, name: &str) -> Value {
        let mut object = subject.base.clone();
        object["apiVersion"] = subject.api_version.clone().into();
        object["kind"] = subject.kind.clone().into();
        object["metadata"] = json!({"name": name});
        if !subject.namespaced {
            object["metadata"]["labels"] = json!({"sequence": "{ns}"});
        }
        for (pointer, value) in self.choose(&subject.fields, 2) {
            put(&mut object, &pointer, &value);
        }
        if self.one_in(3) {
            for (pointer, value) in self.choose(&kinds::metadata(), 2) {
                put(&mut object, &pointer, &value);
            }
        }
        object
    }
}

impl Step {
    fn new(method: &str, path: impl Into<String>) -> Step {
        Step {
            method: method.to_string(),
            path: path.into(),
            ..Step::default()
        }
    }

    fn with(mut self, body: Value) -> Step {
        self.body = Some(body);
        self
    }

    fn of_type(mut self, content_type: &str) -> Step {
        self.content_type = content_type.to_string();
        self
    }
}
