//! The JSON paths of custom resource definitions: printer columns, selectable fields, replica counts.
//!
//! A small part of kubectl's language: fields, quoted fields, indexes, all items, and filters that compare
//! one field with a constant.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// Every item of a list or value of an object.
    All,
    Filter {
        path: JsonPath,
        comparison: Comparison,
        constant: Value,
    },
    /// A filter without comparison: the field is there.
    Has(JsonPath),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("unterminated array")]
    UnclosedBracket,
    #[error("unterminated filter")]
    UnclosedFilter,
    #[error("invalid array index {0}")]
    BadIndex(String),
    #[error("unrecognized character in {0:?}")]
    Unexpected(String),
}

/// Steps of a path, more than any definition has and few enough to walk.
const MOST_STEPS: usize = 64;

impl JsonPath {
    /// Reads `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`, `{.metadata.labels['a.b']}`.
    pub fn parse(text: &str) -> Result<JsonPath, PathError> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = inner.trim().trim_start_matches(['$', '@']);
        let mut steps = Vec::new();
        while !rest.is_empty() && steps.len() < MOST_STEPS {
            rest = if let Some(after) = rest.strip_prefix('[') {
                let (step, after) = bracket(after)?;
                steps.push(step);
                after
            } else if let Some(after) = rest.strip_prefix('.') {
                match after.chars().next() {
                    Some('[') | None => after,
                    Some('.') => return Err(PathError::Unexpected(rest.to_string())),
                    Some(_) => field(after, &mut steps),
                }
            } else if steps.is_empty() {
                field(rest, &mut steps)
            } else {
                return Err(PathError::Unexpected(rest.to_string()));
            };
        }
        match rest.is_empty() {
            true => Ok(JsonPath { steps }),
            false => Err(PathError::Unexpected(rest.to_string())),
        }
    }

    /// Every value that the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(at) => {
                let Value::Array(items) = value else {
                    return Vec::new();
                };
                let at = if *at < 0 { *at + items.len() as i64 } else { *at };
                usize::try_from(at)
                    .ok()
                    .and_then(|at| items.get(at))
                    .into_iter()
                    .collect()
            }
            Step::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Step::Has(path) => items(value).filter(|item| !path.find(item).is_empty()).collect(),
            Step::Filter {
                path,
                comparison,
                constant,
            } => items(value)
                .filter(|item| {
                    let found = path.find(item);
                    let equal = found.first().is_some_and(|value| *value == constant);
                    match comparison {
                        Comparison::Equal => equal,
                        Comparison::NotEqual => !found.is_empty() && !equal,
                    }
                })
                .collect(),
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A plain field name up to the next dot or bracket; a backslash takes the next character as it is.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    steps.push(if name == "*" { Step::All } else { Step::Field(name) });
    &text[end..]
}

/// What stands between brackets, and the rest after them.
fn bracket(text: &str) -> Result<(Step, &str), PathError> {
    if let Some(filter) = text.strip_prefix("?(") {
        let end = filter.find(")]").ok_or(PathError::UnclosedFilter)?;
        return Ok((parse_filter(&filter[..end])?, &filter[end + 2..]));
    }
    for quote in ['\'', '"'] {
        if let Some(quoted) = text.strip_prefix(quote) {
            let close = format!("{quote}]");
            let end = quoted.find(&close).ok_or(PathError::UnclosedBracket)?;
            return Ok((Step::Field(quoted[..end].replace('\\', "")), &quoted[end + 2..]));
        }
    }
    let end = text.find(']').ok_or(PathError::UnclosedBracket)?;
    let step = match text[..end].trim() {
        "*" | ":" | "0:" => Step::All,
        number => Step::Index(number.parse().map_err(|_| PathError::BadIndex(number.to_string()))?),
    };
    Ok((step, &text[end + 1..]))
}

fn parse_filter(text: &str) -> Result<Step, PathError> {
    for (sign, comparison) in [("==", Comparison::Equal), ("!=", Comparison::NotEqual)] {
        if let Some((left, right)) = text.split_once(sign) {
            let right = right.trim();
            let unquoted = right.strip_prefix('\'').and_then(|r| r.strip_suffix('\''));
            let constant = match unquoted {
                Some(text) => Value::String(text.to_string()),
                None => serde_json::from_str(right).map_err(|_| PathError::Unexpected(right.to_string()))?,
            };
            let path = JsonPath::parse(left.trim())?;
            return Ok(Step::Filter {
                path,
                comparison,
                constant,
            });
        }
    }
    Ok(Step::Has(JsonPath::parse(text.trim())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn find(path: &str, value: Value) -> Vec<Value> {
        let path = JsonPath::parse(path).expect("a path");
        path.find(&value).into_iter().cloned().collect()
    }

    #[test]
    fn paths_lead_through_fields_lists_and_filters() {
        let object = json!({
            "spec": {"replicas": 3, "a.b": 1},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"},
            ]},
        });
        assert_eq!(find(".spec.replicas", object.clone()), [json!(3)]);
        assert_eq!(find("{.spec['a.b']}", object.clone()), [json!(1)]);
        assert_eq!(find(r".spec.a\.b", object.clone()), [json!(1)]);
        assert_eq!(
            find(".status.conditions[?(@.type==\"Ready\")].status", object.clone()),
            [json!("True")]
        );
        assert_eq!(
            find(".status.conditions[?(@.type=='Other')].status", object.clone()),
            [json!("False")]
        );
        assert_eq!(
            find(".status.conditions[*].type", object.clone()),
            [json!("Ready"), json!("Other")]
        );
        assert_eq!(find(".status.conditions[-1].type", object.clone()), [json!("Other")]);
        assert_eq!(find(".nowhere.at.all", object), Vec::<Value>::new());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,60}") {
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&json!({"a": [{"b": 1}]}));
            }
        }
    }
}
