//! Protobuf messages of the API as tables: field numbers, JSON names, and what Go leaves out.
//!
//! The wire cannot tell an absent field from a zero one, and the JSON form of an object says which of the
//! two Go would write. So each field carries Go's tags beside its number. `cargo xtask schemas` writes
//! these tables and the API server transcodes with them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every message, and the kinds among them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Messages {
    pub messages: Vec<Message>,
    /// Group, version and kind to the place of the message.
    pub kinds: BTreeMap<(String, String, String), u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Message {
    /// Full name, `k8s.io.api.core.v1.Pod`.
    pub name: Box<str>,
    pub form: Form,
}

/// How a message looks in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Form {
    /// An object; fields in order of their numbers.
    Struct(Vec<Field>),
    /// A message around one repeated field 1, which in JSON is the list alone.
    List(Kind),
    /// Seconds since the epoch, as RFC 3339.
    Time,
    MicroTime,
    /// Nanoseconds, as Go prints a duration.
    Duration,
    Quantity,
    IntOrString,
    /// A message around JSON text in field 1.
    Json,
    /// `JSONSchemaPropsOrArray` and its kin: one of two fields stands for the whole.
    SchemaOrList,
    SchemaOrBool,
    SchemaOrStrings,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    pub number: u32,
    pub json: Box<str>,
    pub kind: Kind,
    pub holder: Holder,
    pub omit: Omit,
    /// The fields of this message are those of its parent in JSON.
    pub inline: bool,
}

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    /// Place of the message in [`Messages::messages`].
    Message(u32),
}

/// How a Go field holds its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// Always there, if only as zero.
    Value,
    /// There when it is on the wire.
    Pointer,
    Slice,
    /// A map from strings.
    Map,
}

/// When JSON leaves the field out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Omit {
    Never,
    /// `omitempty`: zero scalars, nil pointers, empty lists and maps; never structs.
    Empty,
    /// `omitzero`: structs too.
    Zero,
}
