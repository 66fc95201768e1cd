//! Applies that were found to change nothing.
//!
//! Controllers send the same configuration again and again. What was found of one of them holds for as long as the
//! object has the same revision, so it is remembered by a digest of all that it depends on: the object, its revision,
//! who applies, how, and every byte of what is applied. A memory that forgets costs time and nothing else.

use crate::server::decode::FieldValidation;
use crate::server::negotiate::BodyEncoding;
use crate::store::Record;
use crate::verbs::Call;
use crate::verbs::write_options::WriteOptions;

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use std::collections::HashSet;

/// How many applies one generation remembers; there are two.
const GENERATION: usize = 4096;

/// One apply of one configuration to one state of one object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Print([u8; 32]);

impl Print {
    pub fn of(call: &Call, record: &Record, bytes: &[u8], encoding: BodyEncoding, options: &WriteOptions) -> Print {
        let mut context = Context::new(&SHA256);
        let key = &record.key;
        let texts = [
            &key.resource,
            &key.namespace,
            &key.name,
            &call.api_version,
            &options.field_manager,
        ];
        for text in texts {
            // With their lengths, so that no two lists of texts look alike.
            context.update(&text.len().to_le_bytes());
            context.update(text.as_bytes());
        }
        context.update(&record.revision.0.to_le_bytes());
        let encoding = match encoding {
            BodyEncoding::Json => 0,
            BodyEncoding::Yaml => 1,
            BodyEncoding::Protobuf => 2,
        };
        let validation = match options.validation {
            FieldValidation::Ignore => 0,
            FieldValidation::Warn => 1,
            FieldValidation::Strict => 2,
        };
        context.update(&[encoding, validation, u8::from(options.force)]);
        context.update(bytes);
        let mut print = [0; 32];
        print.copy_from_slice(context.finish().as_ref());
        Print(print)
    }
}

/// The memory. What was not asked for through a whole generation is forgotten.
#[derive(Default)]
pub struct Settled {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashSet<Print>,
    old: HashSet<Print>,
}

impl Settled {
    pub fn knows(&self, print: &Print) -> bool {
        let mut generations = self.generations.lock();
        if generations.young.contains(print) {
            return true;
        }
        let known = generations.old.remove(print);
        if known {
            generations.remember(*print);
        }
        known
    }

    pub fn remember(&self, print: Print) {
        self.generations.lock().remember(print);
    }
}

impl Generations {
    fn remember(&mut self, print: Print) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(print);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let print = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Print(bytes)
        };
        let settled = Settled::default();
        settled.remember(print(0));
        settled.remember(print(1));
        for number in 2..4 * GENERATION {
            settled.remember(print(number));
            assert!(settled.knows(&print(0)), "after {number}");
        }
        assert!(!settled.knows(&print(1)));
        let generations = settled.generations.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION);
    }
}
