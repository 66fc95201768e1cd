//! From the wire to JSON.

use super::wire::{Raw, Reader, WireError};
use super::{MAGIC, MESSAGES, ProtobufError, scalars};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Number, Value};
use stead_machinery::wire::{Field, Form, Holder, Kind, Omit};

/// Deeper than any object that passes the JSON decoder.
const DEEPEST: usize = 100;

/// Messages in one body. An empty message of two bytes becomes an object of hundreds, so that a body
/// within the request limit could otherwise take gigabytes.
const MOST_MESSAGES: usize = 300_000;

/// The JSON of a message.
pub fn message(place: u32, bytes: &[u8]) -> Result<Value, ProtobufError> {
    Decoder { left: MOST_MESSAGES }.message(place, bytes, 0)
}

struct Decoder {
    left: usize,
}

impl Decoder {
    fn message(&mut self, place: u32, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        if depth > DEEPEST {
            return Err(WireError::TooDeep.into());
        }
        self.left = self.left.checked_sub(1).ok_or(WireError::TooLarge)?;
        match form(place) {
            Form::Struct(fields) => {
                let mut map = Map::new();
                self.fields(fields, bytes, &mut map, depth)?;
                Ok(Value::Object(map))
            }
            Form::List(kind) => {
                let mut items = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, raw)) = reader.next()? {
                    if number == 1 {
                        items.push(self.value(*kind, number, raw, depth)?);
                    }
                }
                Ok(Value::Array(items))
            }
            special => self.special(special, place, bytes, depth),
        }
    }

    fn fields(
        &mut self,
        fields: &[Field],
        bytes: &[u8],
        map: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(bytes);
        let mut inlined: Vec<(u32, &[u8])> = Vec::new();
        while let Some((number, raw)) = reader.next()? {
            let Ok(at) = fields.binary_search_by_key(&number, |f| f.number) else {
                continue;
            };
            let field = &fields[at];
            match (field.inline, field.kind) {
                (true, Kind::Message(_)) => inlined.push((number, raw.bytes(number)?)),
                _ => self.field(field, raw, map, depth)?,
            }
        }
        for field in fields {
            match (field.inline, field.kind) {
                (true, Kind::Message(place)) => {
                    let sent = inlined.iter().find(|(number, _)| *number == field.number);
                    if let Form::Struct(inner) = form(place) {
                        self.left = self.left.checked_sub(1).ok_or(WireError::TooLarge)?;
                        if depth > DEEPEST {
                            return Err(WireError::TooDeep.into());
                        }
                        self.fields(inner, sent.map_or(&[][..], |(_, bytes)| bytes), map, depth + 1)?;
                    }
                }
                _ => finish(field, map),
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        raw: Raw<'_>,
        map: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        match field.holder {
            Holder::Value | Holder::Pointer => {
                let value = self.value(field.kind, field.number, raw, depth)?;
                map.insert(field.json.to_string(), value);
            }
            Holder::Slice => {
                let items = map
                    .entry(field.json.as_ref())
                    .or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(items) = items else {
                    return Ok(());
                };
                match (field.kind, raw) {
                    (Kind::Bool | Kind::Int32 | Kind::Int64, Raw::Bytes(packed)) => {
                        let mut reader = Reader::new(packed);
                        while let Some(number) = reader.packed()? {
                            items.push(self.value(field.kind, field.number, Raw::Varint(number), depth)?);
                        }
                    }
                    _ => items.push(self.value(field.kind, field.number, raw, depth)?),
                }
            }
            Holder::Map => {
                let (key, value) = self.entry(field, raw, depth)?;
                let entries = map
                    .entry(field.json.as_ref())
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = entries {
                    entries.insert(key, value);
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, field: &Field, raw: Raw<'_>, depth: usize) -> Result<(String, Value), ProtobufError> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = Reader::new(raw.bytes(field.number)?);
        while let Some((number, raw)) = reader.next()? {
            match number {
                1 => key = raw.text(1)?,
                2 => value = Some(self.value(field.kind, 2, raw, depth)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => zero(field.kind),
        };
        Ok((key, value))
    }

    fn value(&mut self, kind: Kind, number: u32, raw: Raw<'_>, depth: usize) -> Result<Value, ProtobufError> {
        Ok(match kind {
            Kind::Bool => Value::Bool(raw.varint(number)? != 0),
            Kind::Int32 => Value::from(raw.varint(number)? as i32),
            Kind::Int64 => Value::from(raw.varint(number)? as i64),
            Kind::Double => match raw {
                Raw::Fixed64(bits) => Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, integral),
                _ => return Err(WireError::WrongWireType(number).into()),
            },
            Kind::String => Value::String(raw.text(number)?),
            Kind::Bytes => Value::String(STANDARD.encode(raw.bytes(number)?)),
            Kind::Message(place) => self.message(place, raw.bytes(number)?, depth + 1)?,
        })
    }

    fn special(&mut self, form: &Form, place: u32, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        let mut parts: [Option<Raw<'_>>; 3] = [None; 3];
        let mut strings = Vec::new();
        let mut messages = Vec::new();
        let schema = schema_of(place);
        let mut reader = Reader::new(bytes);
        while let Some((number, raw)) = reader.next()? {
            match (form, number) {
                (Form::SchemaOrStrings, 2) => strings.push(Value::String(raw.text(2)?)),
                (Form::SchemaOrList, 2) => messages.push(self.message(schema, raw.bytes(2)?, depth + 1)?),
                (_, 1..=3) => parts[number as usize - 1] = Some(raw),
                _ => {}
            }
        }
        let number = |at: usize| match parts[at] {
            Some(raw) => raw.varint(at as u32 + 1).map(|v| v as i64),
            None => Ok(0),
        };
        let text = |at: usize| parts[at].map_or(Ok(String::new()), |raw| raw.text(at as u32 + 1));
        Ok(match form {
            Form::Time | Form::MicroTime if parts[0].is_none() && parts[1].is_none() => Value::Null,
            Form::Time if number(0)? == 0 && number(1)? == 0 => Value::Null,
            Form::MicroTime if number(0)? == 0 && number(1)? == 0 => Value::Null,
            Form::Time => Value::String(scalars::time(number(0)?)?),
            Form::MicroTime => Value::String(scalars::micro_time(number(0)?, number(1)?)?),
            Form::Duration => Value::String(scalars::duration(number(0)?)),
            Form::Quantity => match text(0)? {
                empty if empty.is_empty() => Value::String("0".into()),
                quantity => Value::String(quantity),
            },
            Form::IntOrString if number(0)? == 1 => Value::String(text(2)?),
            Form::IntOrString => Value::from(number(1)? as i32),
            Form::Json => self.json(parts[0].map_or(Ok(&[][..]), |raw| raw.bytes(1))?)?,
            Form::SchemaOrList if !messages.is_empty() => Value::Array(messages),
            Form::SchemaOrStrings if !strings.is_empty() => Value::Array(strings),
            Form::SchemaOrList | Form::SchemaOrStrings => match parts[0] {
                Some(raw) => self.message(schema, raw.bytes(1)?, depth + 1)?,
                None => Value::Null,
            },
            Form::SchemaOrBool => match parts[1] {
                Some(raw) => self.message(schema, raw.bytes(2)?, depth + 1)?,
                None => Value::Bool(number(0)? != 0),
            },
            Form::Struct(_) | Form::List(_) => Value::Null,
        })
    }

    /// JSON text inside a message; a Go client may also put a whole protobuf body there.
    fn json(&mut self, bytes: &[u8]) -> Result<Value, ProtobufError> {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        if bytes.starts_with(MAGIC) {
            // The inner body has limits of its own, and what it takes counts here too.
            self.left = self.left.checked_sub(bytes.len() / 2).ok_or(WireError::TooLarge)?;
            return super::decode(bytes);
        }
        serde_json::from_slice(bytes).map_err(|e| ProtobufError::NotJson(e.to_string()))
    }
}

pub(super) fn form(place: u32) -> &'static Form {
    &MESSAGES.messages[place as usize].form
}

/// The `JSONSchemaProps` that stands beside one of its union types in the same package.
pub(super) fn schema_of(place: u32) -> u32 {
    let name = &MESSAGES.messages[place as usize].name;
    let package = name.rsplit_once('.').map_or("", |(package, _)| package);
    let same = |m: &stead_machinery::wire::Message| {
        m.name
            .strip_prefix(package)
            .is_some_and(|rest| rest == ".JSONSchemaProps")
    };
    let near = (place as usize).saturating_sub(8)..MESSAGES.messages.len();
    near.clone()
        .find(|&at| same(&MESSAGES.messages[at]))
        .map_or(place, |at| at as u32)
}

/// Go writes 1.0 as `1`.
fn integral(number: Number) -> Value {
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => Value::from(float as i64),
        _ => Value::Number(number),
    }
}

/// Adds what Go writes without being told, and drops what it leaves out.
pub(super) fn finish(field: &Field, map: &mut Map<String, Value>) {
    let name = field.json.as_ref();
    let present = map.get(name);
    match (field.holder, present) {
        (Holder::Value, None) => {
            let omitted = match (field.omit, field.kind) {
                (Omit::Never, _) => false,
                // Absent bytes are nil, which `omitempty` leaves out like any zero scalar.
                (Omit::Empty, Kind::Message(place)) => matches!(form(place), Form::List(_)),
                (Omit::Empty, _) => true,
                (Omit::Zero, _) => true,
            };
            if !omitted {
                map.insert(name.to_string(), zero(field.kind));
            }
        }
        // What is always written needs no look.
        (Holder::Value, Some(value)) if field.omit != Omit::Never => {
            let is_zero = match field.kind {
                Kind::Message(place) => field.omit == Omit::Zero && *value == zero_message(place),
                _ => *value == zero(field.kind) || (field.kind == Kind::Bytes && *value == ""),
            };
            if is_zero {
                map.remove(name);
            }
        }
        (_, None) if field.omit == Omit::Never => {
            map.insert(name.to_string(), Value::Null);
        }
        (Holder::Slice | Holder::Map, Some(value)) if field.omit != Omit::Never => {
            let empty = match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(entries) => entries.is_empty(),
                _ => false,
            };
            if empty {
                map.remove(name);
            }
        }
        _ => {}
    }
}

fn zero(kind: Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(false),
        Kind::Int32 | Kind::Int64 | Kind::Double => Value::from(0),
        Kind::String => Value::String(String::new()),
        Kind::Bytes => Value::Null,
        Kind::Message(place) => zero_message(place),
    }
}

pub(super) fn zero_message(place: u32) -> Value {
    match form(place) {
        Form::Struct(fields) => {
            let mut map = Map::new();
            zero_fields(fields, &mut map);
            Value::Object(map)
        }
        Form::Time | Form::MicroTime | Form::Json | Form::List(_) => Value::Null,
        Form::SchemaOrList | Form::SchemaOrStrings => Value::Null,
        Form::Duration => Value::String("0s".into()),
        Form::Quantity => Value::String("0".into()),
        Form::IntOrString => Value::from(0),
        Form::SchemaOrBool => Value::Bool(false),
    }
}

fn zero_fields(fields: &[Field], map: &mut Map<String, Value>) {
    for field in fields {
        match (field.inline, field.kind) {
            (true, Kind::Message(place)) => {
                if let Form::Struct(inner) = form(place) {
                    zero_fields(inner, map);
                }
            }
            _ => finish(field, map),
        }
    }
}
