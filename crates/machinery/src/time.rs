//! Times as API objects carry them: RFC 3339 in UTC, whole seconds.

use jiff::Timestamp;

/// `2026-11-16T03:10:11Z`; what is below a second is dropped.
pub fn rfc3339(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

/// For `#[serde(with = "...")]`: a timestamp in whole seconds.
pub mod seconds {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::rfc3339(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        Timestamp::deserialize(deserializer)
    }
}
