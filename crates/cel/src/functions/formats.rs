//! Named formats: what a string must look like to be a name, a label or a date.

use super::{Call, urls};
use crate::error::EvalError;
use crate::times;
use crate::value::Value;
use base64::Engine;
use stead_machinery::names;

/// A format and its complaints about a string.
#[derive(Debug)]
pub struct NamedFormat {
    /// As expressions name it.
    pub key: &'static str,
    pub name: &'static str,
    complaints: fn(&str) -> Vec<String>,
    /// How long the regular expression is that Kubernetes counts as the cost of checking.
    pub regex_size: u64,
}

/// A prefix of a name may end with a dash, since something follows it.
fn masked_prefix(value: &str) -> String {
    match value.strip_suffix('-') {
        Some(rest) if rest.len() + 1 == value.len() && !rest.is_empty() => format!("{rest}a"),
        _ => value.to_string(),
    }
}

fn otherwise(valid: bool, complaint: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![complaint.to_string()] }
}

fn is_uuid(text: &str) -> bool {
    let plain: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let dashes: Vec<usize> = text.match_indices('-').map(|(place, _)| place).collect();
    plain.len() == 32 && plain.iter().all(u8::is_ascii_hexdigit) && (dashes.is_empty() || dashes == [8, 13, 18, 23])
}

static FORMATS: &[NamedFormat] = &[
    NamedFormat {
        key: "dns1123Label",
        name: "DNS1123Label",
        complaints: names::dns1123_label,
        regex_size: 30,
    },
    NamedFormat {
        key: "dns1123Subdomain",
        name: "DNS1123Subdomain",
        complaints: names::dns1123_subdomain,
        regex_size: 60,
    },
    NamedFormat {
        key: "dns1035Label",
        name: "DNS1035Label",
        complaints: names::dns1035_label,
        regex_size: 30,
    },
    NamedFormat {
        key: "qualifiedName",
        name: "QualifiedName",
        complaints: names::qualified_name,
        regex_size: 60,
    },
    NamedFormat {
        key: "dns1123LabelPrefix",
        name: "DNS1123LabelPrefix",
        complaints: |text| names::dns1123_label(&masked_prefix(text)),
        regex_size: 30,
    },
    NamedFormat {
        key: "dns1123SubdomainPrefix",
        name: "DNS1123SubdomainPrefix",
        complaints: |text| names::dns1123_subdomain(&masked_prefix(text)),
        regex_size: 60,
    },
    NamedFormat {
        key: "dns1035LabelPrefix",
        name: "DNS1035LabelPrefix",
        complaints: |text| names::dns1035_label(&masked_prefix(text)),
        regex_size: 30,
    },
    NamedFormat {
        key: "labelValue",
        name: "LabelValue",
        complaints: names::label_value,
        regex_size: 40,
    },
    NamedFormat {
        key: "uri",
        name: "URI",
        complaints: |text| match urls::parse(text) {
            Ok(_) => Vec::new(),
            Err(why) => vec![format!("parse {text:?}: {why}")],
        },
        regex_size: 1640,
    },
    NamedFormat {
        key: "uuid",
        name: "uuid",
        complaints: |text| otherwise(is_uuid(text), "does not match the UUID format"),
        regex_size: 83,
    },
    NamedFormat {
        key: "byte",
        name: "byte",
        complaints: |text| {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            otherwise(decoded.is_ok(), "invalid base64")
        },
        regex_size: 84,
    },
    NamedFormat {
        key: "date",
        name: "date",
        complaints: |text| {
            let midnight = times::parse_timestamp(&format!("{text}T00:00:00Z"));
            otherwise(midnight.is_some() && text.len() == 10, "invalid date")
        },
        regex_size: 81,
    },
    NamedFormat {
        key: "datetime",
        name: "datetime",
        complaints: |text| otherwise(times::parse_timestamp(text).is_some(), "invalid datetime"),
        regex_size: 81,
    },
];

/// The format with this key.
pub fn named(key: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.key == key)
}

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "format.named" => |args| match args {
            [Value::String(key)] => Ok(match named(key) {
                Some(format) => Value::some(Value::Format(format)),
                None => Value::none(),
            }),
            _ => Err(EvalError::NoSuchOverload),
        },
        "validate" => |args| match args {
            [Value::Format(format), Value::String(text)] => {
                let complaints: Vec<Value<'_>> = (format.complaints)(text).into_iter().map(Value::string).collect();
                Ok(if complaints.is_empty() {
                    Value::none()
                } else {
                    Value::some(Value::list(complaints))
                })
            }
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => return None,
    })
}
