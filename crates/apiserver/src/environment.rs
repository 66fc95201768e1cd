//! What the server takes from outside: time, identity and randomness.
//!
//! Nothing in this crate reads the wall clock or a random source by itself, so that a test can run
//! the whole server on a clock of its own and get the same trace from the same seed.

use jiff::Timestamp;
use std::sync::Arc;

/// The sources of time, identity and randomness, shared by everything in one server.
#[derive(Clone)]
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// Where unpredictable bytes come from: UIDs, generated names, token identifiers.
pub trait Entropy: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

/// The machine's own clock and random source.
struct Machine;

impl Environment {
    /// The real clock and real randomness.
    pub fn real() -> Self {
        Environment {
            clock: Arc::new(Machine),
            entropy: Arc::new(Machine),
        }
    }

    /// A version 4 UUID, as `metadata.uid` wants it.
    pub fn uid(&self) -> String {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// One of so many.
    pub fn below(&self, count: usize) -> usize {
        let mut bytes = [0; 8];
        self.entropy.fill(&mut bytes);
        usize::from_le_bytes(bytes) % count.max(1)
    }

    /// Five characters for `generateName`, from the alphabet that Kubernetes uses: no vowels, nothing that
    /// is mistaken for another.
    pub fn name_suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bytes = [0; 5];
        self.entropy.fill(&mut bytes);
        bytes
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
            .collect()
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

impl Entropy for Machine {
    fn fill(&self, bytes: &mut [u8]) {
        rand::Rng::fill(&mut rand::rng(), bytes);
    }
}
