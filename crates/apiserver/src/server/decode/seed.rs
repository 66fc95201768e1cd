//! The pass over a document: builds the value, drops what the schema does not name, notes what came twice.

use super::go;
use super::{DecodeError, Decoded};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;
use stead_machinery::schema::{Format, SchemaRef, Shape};

/// Strict errors beyond this many are not listed, as in Kubernetes' decoder.
const MOST_STRICT_ERRORS: usize = 100;

/// What the pass has found, shared by all of its levels.
#[derive(Default)]
struct Findings {
    strict: Vec<String>,
    /// What ended the pass. Kept here because the deserialisers add positions to error texts.
    failure: Option<String>,
    /// The first value of the wrong type that Go's decoder passes over, to tell of it only where nothing ends the pass.
    passed_over: Option<String>,
    mistakes: Mistakes,
}

/// What becomes of a value of the wrong type.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum Mistakes {
    /// The first ends the pass, as in Go's converter.
    #[default]
    End,
    /// The pass goes on, as in Go's decoder, unless the type reads itself.
    PassOver,
}

/// A place in the document. A list on the stack, so that a path is only built when it is reported.
#[derive(Clone, Copy)]
struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    segment: Segment<'p>,
}

#[derive(Clone, Copy)]
enum Segment<'p> {
    Root,
    Field(&'p str),
    /// A key of a map, which Go leaves out of the path of a type error.
    Key(&'p str),
    Index(usize),
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    schema: Option<SchemaRef<'a>>,
    /// The struct that the value is, or is somewhere inside, a field of.
    owner: Option<SchemaRef<'a>>,
    path: &'a Path<'a>,
    findings: &'a RefCell<Findings>,
}

pub fn json(bytes: &[u8], schema: Option<SchemaRef<'_>>) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let outcome = run(schema, Mistakes::PassOver, |seed| seed.deserialize(&mut deserializer));
    let decoded = outcome.map_err(|error| {
        error.or_syntax(|why: serde_json::Error| {
            format!(
                "couldn't get version/kind; json parse error: {}",
                go::json_error(bytes, &why)
            )
        })
    })?;
    deserializer.end().map_err(|error| {
        DecodeError::Syntax(format!(
            "couldn't get version/kind; json parse error: {}",
            go::json_error(bytes, &error)
        ))
    })?;
    Ok(decoded)
}

pub fn yaml(bytes: &[u8], schema: Option<SchemaRef<'_>>) -> Result<Decoded, DecodeError> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    let outcome = run(schema, Mistakes::PassOver, |seed| {
        serde_saphyr::with_deserializer_from_slice_with_options(bytes, options, |deserializer| {
            seed.deserialize(deserializer)
        })
    });
    outcome.map_err(|error| error.or_syntax(|why: serde_saphyr::Error| go::yaml_error(&why)))
}

pub fn protobuf(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    match crate::protobuf::decode(bytes) {
        Ok(value) => Ok(Decoded {
            value,
            strict: Vec::new(),
        }),
        Err(error) => Err(DecodeError::Syntax(error.to_string())),
    }
}

/// The same pass over a value that is decoded already: what a patch has made.
pub fn decode_value(value: Value, schema: Option<SchemaRef<'_>>, mistakes: Mistakes) -> Result<Decoded, DecodeError> {
    run(schema, mistakes, |seed| seed.deserialize(value.into_deserializer()))
        .map_err(|error| error.or_syntax(|why: serde_json::Error| why.to_string()))
}

enum Failure<E> {
    Type(String),
    Other(E),
}

impl<E> Failure<E> {
    fn or_syntax(self, words: impl FnOnce(E) -> String) -> DecodeError {
        match self {
            Failure::Type(message) => DecodeError::Type(message),
            Failure::Other(error) => DecodeError::Syntax(words(error)),
        }
    }
}

fn run<E>(
    schema: Option<SchemaRef<'_>>,
    mistakes: Mistakes,
    decode: impl FnOnce(Seed<'_>) -> Result<Value, E>,
) -> Result<Decoded, Failure<E>> {
    let findings = RefCell::new(Findings {
        mistakes,
        ..Findings::default()
    });
    let root = Path {
        parent: None,
        segment: Segment::Root,
    };
    let outcome = decode(Seed {
        schema,
        owner: None,
        path: &root,
        findings: &findings,
    });
    let findings = findings.into_inner();
    match (outcome, findings.failure) {
        (Ok(value), _) => match findings.passed_over {
            None => Ok(Decoded {
                value,
                strict: findings.strict,
            }),
            Some(message) => Err(Failure::Type(message)),
        },
        (Err(_), Some(message)) => Err(Failure::Type(message)),
        (Err(error), None) => Err(Failure::Other(error)),
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            Segment::Root => Ok(()),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Field(name) | Segment::Key(name)
                if self.parent.is_some_and(|p| matches!(p.segment, Segment::Root)) =>
            {
                f.write_str(name)
            }
            Segment::Field(name) | Segment::Key(name) => write!(f, ".{name}"),
        }
    }
}

impl<'a> Seed<'a> {
    fn shape(&self) -> Option<&'a Shape> {
        self.schema.map(SchemaRef::shape)
    }

    fn note(&self, what: &str, field: &str) {
        let mut findings = self.findings.borrow_mut();
        if findings.strict.len() < MOST_STRICT_ERRORS {
            let path = Path {
                parent: Some(self.path),
                segment: Segment::Field(field),
            };
            findings.strict.push(format!("{what} field \"{path}\""));
        }
    }

    /// A value of the wrong type, in the words of Go's decoder.
    fn mismatch<E: Error>(&self, found: &str) -> Result<Value, E> {
        let mut fields = Vec::new();
        let mut at = Some(self.path);
        while let Some(path) = at {
            if let Segment::Field(name) = path.segment {
                fields.push(name);
            }
            at = path.parent;
        }
        fields.reverse();
        self.refuse(go::mismatch(found, self.schema, self.owner, &fields.join(".")))
    }

    /// Ends the pass with this message, or keeps it and goes on.
    fn refuse<E: Error>(&self, message: String) -> Result<Value, E> {
        let mut findings = self.findings.borrow_mut();
        let reads_itself = matches!(
            self.shape(),
            Some(Shape::Quantity | Shape::IntOrString | Shape::String(Format::DateTime))
        );
        if findings.mistakes == Mistakes::PassOver && !reads_itself {
            findings.passed_over.get_or_insert(message);
            return Ok(Value::Null);
        }
        findings.failure = Some(message);
        Err(E::custom("type mismatch"))
    }

    fn takes_any_number(&self) -> bool {
        matches!(self.shape(), None | Some(Shape::Any | Shape::Free | Shape::Number))
    }

    fn scalar<E: Error>(&self, value: Value) -> Result<Value, E> {
        let fits = match self.shape() {
            None | Some(Shape::Any | Shape::Free) => true,
            Some(Shape::Object(object)) => object.preserve_unknown && object.properties.is_empty(),
            Some(Shape::List(_)) => false,
            Some(Shape::String(Format::Byte | Format::DateTime | Format::Plain | Format::Other(_))) => {
                value.is_string()
            }
            Some(Shape::Integer) => match value.as_i64() {
                Some(number) => i32::try_from(number).is_ok() || !self.schema.is_some_and(go::is_narrow),
                None => value.is_u64(),
            },
            Some(Shape::Number) => value.is_number(),
            Some(Shape::Boolean) => value.is_boolean(),
            Some(Shape::IntOrString) => value.is_i64() || value.is_u64() || value.is_string(),
            Some(Shape::Quantity) => value.is_number() || value.is_string(),
        };
        if !fits && matches!(self.path.segment, Segment::Root) {
            return Ok(value);
        }
        if !fits {
            return self.mismatch(&go::json_type(&value));
        }
        if let (Some(shape), Value::String(text)) = (self.shape(), &value)
            && let Some(why) = go::malformed(shape, text, self.schema)
        {
            return self.refuse(why);
        }
        Ok(match (self.shape(), value) {
            (Some(Shape::Quantity), Value::Number(number)) => Value::String(number.to_string()),
            (_, value) => value,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // Go reads 3.0 into an integer field only if it is written without the point; 1e3 likewise is refused.
        match Number::from_f64(value) {
            // Where any number may stand, Go writes a whole one without the point.
            Some(_) if self.takes_any_number() && value.fract() == 0.0 && value.abs() < 1e15 => {
                self.scalar(Value::Number((value as i64).into()))
            }
            Some(number) => self.scalar(Value::Number(number)),
            None => Err(E::custom("not a finite number")),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_string())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.scalar(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let schema = match self.shape() {
            None | Some(Shape::Any | Shape::Free) => None,
            Some(Shape::List(_)) => self.schema.and_then(SchemaRef::items),
            Some(Shape::Object(object)) if object.preserve_unknown && object.properties.is_empty() => None,
            // At the top it is no type error but no object at all, which the caller says better.
            Some(_) if matches!(self.path.segment, Segment::Root) => None,
            Some(_) => {
                let outcome = self.mismatch("array")?;
                while items.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(outcome);
            }
        };
        let mut list = Vec::new();
        loop {
            let path = Path {
                parent: Some(self.path),
                segment: Segment::Index(list.len()),
            };
            let seed = Seed {
                schema,
                owner: self.owner,
                path: &path,
                findings: self.findings,
            };
            match items.next_element_seed(seed)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let object = match self.shape() {
            None | Some(Shape::Any | Shape::Free) => None,
            Some(Shape::Object(object)) => Some(object),
            Some(_) => {
                let outcome = self.mismatch("object")?;
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(outcome);
            }
        };
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let is_field = object.is_none_or(|object| object.properties.contains_key(name.as_str()));
            let path = Path {
                parent: Some(self.path),
                segment: match is_field {
                    true => Segment::Field(&name),
                    false => Segment::Key(&name),
                },
            };
            let schema = self.schema.and_then(|schema| schema.field(&name));
            let seed = Seed {
                schema,
                owner: match is_field {
                    true => self.schema,
                    false => self.owner,
                },
                path: &path,
                findings: self.findings,
            };
            let value = entries.next_value_seed(seed)?;
            match object {
                Some(object) if schema.is_none() && !object.preserve_unknown => {
                    self.note("unknown", &name);
                    continue;
                }
                // The value of a map that is sent as null is the zero value of its type.
                Some(_) if value.is_null() && !is_field && holds_text(schema) => {
                    map.insert(name, Value::String(String::new()));
                    continue;
                }
                // Go leaves a field alone that is sent as null: there is nothing to keep.
                Some(_) if value.is_null() && !keeps_null(schema) => continue,
                _ => {}
            }
            if map.contains_key(&name) {
                self.note("duplicate", &name);
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

fn holds_text(schema: Option<SchemaRef<'_>>) -> bool {
    schema.is_some_and(|schema| matches!(schema.shape(), Shape::String(Format::Plain | Format::Other(_))))
}

/// Where a null is a value of its own.
fn keeps_null(schema: Option<SchemaRef<'_>>) -> bool {
    schema.is_none_or(|schema| schema.node().nullable || matches!(schema.shape(), Shape::Any | Shape::Free))
}

#[cfg(test)]
#[path = "seed_tests.rs"]
mod tests;
