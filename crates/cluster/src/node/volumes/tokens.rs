//! Tokens of service accounts in volumes: asked for once, and again when they grow old.
//!
//! A volume is compared with its objects every few seconds; a token is not an object, and asking for a new one each
//! time would sign thousands a day for each pod.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;

/// A token is replaced at the latest after this long, as Kubernetes does it.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// The tokens that volumes of this machine's pods have now.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<Wanted, Held>>);

/// Which token a volume wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The UID of the pod that it is bound to.
    pub pod: String,
    pub audience: Option<String>,
    pub seconds: i64,
}

struct Held {
    token: String,
    renew_at: Timestamp,
}

impl Tokens {
    /// A token that is young enough still.
    pub fn get(&self, wanted: &Wanted, now: Timestamp) -> Option<String> {
        let held = self.0.lock();
        let held = held.get(wanted).filter(|held| now < held.renew_at)?;
        Some(held.token.clone())
    }

    /// Keeps a token until four fifths of its life are over, which the server may have made shorter than was asked for.
    pub fn put(&self, wanted: Wanted, token: String, now: Timestamp, expires: Option<Timestamp>) {
        let asked = SignedDuration::from_secs(wanted.seconds);
        let given = expires.map_or(asked, |expires| expires.duration_since(now));
        let life = SignedDuration::from_secs(given.as_secs().saturating_mul(4) / 5).min(LONGEST);
        let renew_at = now.checked_add(life).unwrap_or(Timestamp::MAX);
        self.0.lock().insert(wanted, Held { token, renew_at });
    }

    /// Forgets the tokens of a pod that is gone.
    pub fn forget(&self, pod: &str) {
        self.0.lock().retain(|wanted, _| wanted.pod != pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_asked_for_again_when_it_grows_old() {
        let tokens = Tokens::default();
        let wanted = |pod: &str| Wanted {
            pod: pod.to_owned(),
            audience: None,
            seconds: 3600,
        };
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |minutes: i64| start + SignedDuration::from_mins(minutes);
        assert_eq!(tokens.get(&wanted("a"), start), None);
        tokens.put(wanted("a"), "first".to_owned(), start, None);
        assert_eq!(tokens.get(&wanted("a"), after(47)).as_deref(), Some("first"));
        assert_eq!(tokens.get(&wanted("a"), after(48)), None);
        assert_eq!(tokens.get(&wanted("b"), start), None);
        tokens.put(wanted("c"), "short".to_owned(), start, Some(after(10)));
        assert_eq!(tokens.get(&wanted("c"), after(7)).as_deref(), Some("short"));
        assert_eq!(tokens.get(&wanted("c"), after(8)), None);
        tokens.forget("a");
        assert_eq!(tokens.get(&wanted("a"), start), None);
    }
}
