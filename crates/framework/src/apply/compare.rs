//! Does a live object already say what we want?
//!
//! The API server remembers which fields we own. The tree of owned fields is walked beside the wish and the
//! live object: it knows by itself which lists are keyed and which values are taken as a whole, so no schema
//! is needed. Defaults that the server filled in beside our fields are not ours and do not matter.

use serde_json::{Map, Value};
use stead_machinery::quantity::Quantity;

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Applying would change nothing.
    Same,
    /// Inside a value that we own as a whole the live object has more than we want. It may be a default or the
    /// rest of an earlier wish; only having seen the server's answer to this very wish tells.
    Unsure,
    /// These places of the wish differ, as JSON pointers; a field that we own and do not want any more is
    /// named by the pointer it would have.
    Differs(Vec<String>),
}

/// Compares a wish with a live object, by the fields that a manager has applied.
pub fn compare(wish: &Value, live: &Value, manager: &str) -> Verdict {
    let Some(owned) = owned_fields(live, manager) else {
        return Verdict::Differs(vec![String::new()]);
    };
    let mut walk = Walk::default();
    walk.object(owned, wish, live, &Pointer::Root);
    match (walk.differs.is_empty(), walk.unsure) {
        (false, _) => Verdict::Differs(walk.differs),
        (true, true) => Verdict::Unsure,
        (true, false) => Verdict::Same,
    }
}

/// What the fields that a manager has applied look like, to recognise the server's rendering of a wish.
pub(crate) fn owned_part(live: &Value, manager: &str) -> Value {
    owned_fields(live, manager).map_or(Value::Null, |owned| project(owned, live))
}

fn owned_fields<'a>(live: &'a Value, manager: &str) -> Option<&'a Map<String, Value>> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let ours = entries.iter().find(|entry| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    })?;
    ours["fieldsV1"].as_object()
}

/// Where in the wish the walk is, built without allocating until something differs.
enum Pointer<'a> {
    Root,
    Field(&'a Pointer<'a>, &'a str),
    Item(&'a Pointer<'a>, usize),
}

impl Pointer<'_> {
    fn print(&self) -> String {
        match self {
            Pointer::Root => String::new(),
            Pointer::Field(parent, name) => {
                format!("{}/{}", parent.print(), name.replace('~', "~0").replace('/', "~1"))
            }
            Pointer::Item(parent, position) => format!("{}/{position}", parent.print()),
        }
    }

    /// Quantities are written by the server in their canonical form, and occur under these names only.
    fn holds_quantity(&self) -> bool {
        const NAMES: &[&str] = &[
            "limits",
            "requests",
            "hard",
            "capacity",
            "allocatable",
            "sizeLimit",
            "divisor",
            "averageValue",
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
            "overhead",
            "podFixed",
        ];
        match self {
            Pointer::Root => false,
            Pointer::Field(parent, name) => {
                let above = matches!(parent, Pointer::Field(_, above) if NAMES.contains(above));
                above || NAMES.contains(name)
            }
            Pointer::Item(..) => false,
        }
    }
}

#[derive(Default)]
struct Walk {
    differs: Vec<String>,
    unsure: bool,
}

impl Walk {
    fn object(&mut self, owned: &Map<String, Value>, wish: &Value, live: &Value, at: &Pointer<'_>) {
        let Some(wished) = wish.as_object() else {
            return self.differs.push(at.print());
        };
        for (path, below) in owned {
            let Some(name) = path.strip_prefix("f:") else { continue };
            let here = Pointer::Field(at, name);
            match wished.get(name) {
                None | Some(Value::Null) => self.differs.push(here.print()),
                Some(value) => self.value(below, value, live.get(name), &here),
            }
        }
        for (name, value) in wished {
            let known = owned.contains_key(&format!("f:{name}"));
            if known || value.is_null() || is_identity(at, name) {
                continue;
            }
            let here = Pointer::Field(at, name);
            match (at, name.as_str()) {
                // Metadata with nothing but the identity in it is not owned by anybody either.
                (Pointer::Root, "metadata") => self.object(&Map::new(), value, &Value::Null, &here),
                _ => self.differs.push(here.print()),
            }
        }
    }

    fn value(&mut self, below: &Value, wish: &Value, live: Option<&Value>, at: &Pointer<'_>) {
        let Some(live) = live else {
            return self.differs.push(at.print());
        };
        let empty = Map::new();
        let below = below.as_object().unwrap_or(&empty);
        let mut inner = below.keys().filter(|path| *path != ".");
        match inner.next() {
            None => self.whole(wish, live, at),
            Some(path) if path.starts_with("f:") => self.object(below, wish, live, at),
            Some(_) => self.list(below, wish, live, at),
        }
    }

    /// A list whose items are owned one by one, by key or by value.
    fn list(&mut self, below: &Map<String, Value>, wish: &Value, live: &Value, at: &Pointer<'_>) {
        let (Some(wished), Some(live)) = (wish.as_array(), live.as_array()) else {
            return self.differs.push(at.print());
        };
        let owned = below.keys().filter(|path| *path != ".").count();
        if owned != wished.len() {
            return self.differs.push(at.print());
        }
        for (path, inside) in below {
            if let Some(keys) = path.strip_prefix("k:") {
                let Ok(Value::Object(keys)) = serde_json::from_str(keys) else {
                    return self.differs.push(at.print());
                };
                let position = wished.iter().position(|item| has_keys(item, &keys, Missing::IsDefault));
                let found = live.iter().find(|item| has_keys(item, &keys, Missing::IsOther));
                match (position, found) {
                    (Some(position), Some(found)) => {
                        let here = Pointer::Item(at, position);
                        self.item(inside, &wished[position], found, &keys, &here);
                    }
                    _ => self.differs.push(at.print()),
                }
            } else if let Some(value) = path.strip_prefix("v:") {
                let value: Value = serde_json::from_str(value).unwrap_or_default();
                if !wished.contains(&value) || !live.contains(&value) {
                    self.differs.push(at.print());
                }
            } else if path != "." {
                self.whole(wish, &Value::Array(live.clone()), at);
            }
        }
    }

    /// An item of a keyed list. Its keys may be missing in the wish where the schema has a default for them.
    fn item(&mut self, inside: &Value, wish: &Value, live: &Value, keys: &Map<String, Value>, at: &Pointer<'_>) {
        let empty = Map::new();
        let inside = inside.as_object().unwrap_or(&empty);
        if inside.keys().all(|path| path == ".") && wish.as_object().is_some_and(|wish| wish.len() > keys.len()) {
            return self.whole(wish, live, at);
        }
        self.object(inside, wish, live, at);
        // A key that has a default is owned as a part of the item's name, not as a field.
        for name in keys.keys() {
            let here = Pointer::Field(at, name).print();
            if wish.get(name).is_none() || !inside.contains_key(&format!("f:{name}")) {
                self.differs.retain(|place| *place != here);
            }
        }
    }

    fn whole(&mut self, wish: &Value, live: &Value, at: &Pointer<'_>) {
        match covers(wish, live, at) {
            Cover::Exactly => {}
            Cover::WithMore => self.unsure = true,
            Cover::Not => self.differs.push(at.print()),
        }
    }
}

/// The type and the name of an object are not owned by anybody.
fn is_identity(at: &Pointer<'_>, name: &str) -> bool {
    match at {
        Pointer::Root => matches!(name, "apiVersion" | "kind"),
        Pointer::Field(Pointer::Root, "metadata") => {
            matches!(name, "name" | "namespace" | "uid" | "resourceVersion" | "generateName")
        }
        Pointer::Field(..) | Pointer::Item(..) => false,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Missing {
    IsDefault,
    IsOther,
}

fn has_keys(item: &Value, keys: &Map<String, Value>, missing: Missing) -> bool {
    keys.iter().all(|(name, value)| match item.get(name) {
        Some(has) => has == value,
        None => missing == Missing::IsDefault,
    })
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cover {
    Exactly,
    WithMore,
    Not,
}

/// Whether a live value is the wished one, possibly with fields that were filled in.
fn covers(wish: &Value, live: &Value, at: &Pointer<'_>) -> Cover {
    match (wish, live) {
        (Value::Object(wish), Value::Object(live)) => {
            let mut worst = Cover::Exactly;
            for (name, value) in wish.iter().filter(|(_, value)| !value.is_null()) {
                worst = worst.max(match live.get(name) {
                    Some(live) => covers(value, live, &Pointer::Field(at, name)),
                    None => Cover::Not,
                });
            }
            let more = live
                .iter()
                .any(|(name, value)| !value.is_null() && wish.get(name).is_none_or(Value::is_null));
            if more { worst.max(Cover::WithMore) } else { worst }
        }
        (Value::Array(wish), Value::Array(live)) if wish.len() == live.len() => {
            let pairs = wish.iter().zip(live).enumerate();
            pairs
                .map(|(position, (wish, live))| covers(wish, live, &Pointer::Item(at, position)))
                .max()
                .unwrap_or(Cover::Exactly)
        }
        _ if same_scalar(wish, live, at) => Cover::Exactly,
        _ => Cover::Not,
    }
}

fn same_scalar(wish: &Value, live: &Value, at: &Pointer<'_>) -> bool {
    if wish == live {
        return true;
    }
    if let (Some(wish), Some(live)) = (wish.as_f64(), live.as_f64()) {
        return wish == live;
    }
    at.holds_quantity() && same_quantity(wish, live)
}

fn same_quantity(wish: &Value, live: &Value) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match (text(wish), text(live)) {
        (Some(wish), Some(live)) => match (wish.parse::<Quantity>(), live.parse::<Quantity>()) {
            (Ok(wish), Ok(live)) => wish == live,
            _ => false,
        },
        _ => false,
    }
}

/// The part of a live object that a tree of owned fields names.
fn project(owned: &Map<String, Value>, live: &Value) -> Value {
    let mut part = Map::new();
    for (path, below) in owned {
        let empty = Map::new();
        let below = below.as_object().unwrap_or(&empty);
        let value = if let Some(name) = path.strip_prefix("f:") {
            live.get(name)
        } else if let Some(keys) = path.strip_prefix("k:") {
            let keys = serde_json::from_str::<Map<String, Value>>(keys).unwrap_or_default();
            let items = live.as_array();
            items.and_then(|items| items.iter().find(|item| has_keys(item, &keys, Missing::IsOther)))
        } else {
            continue;
        };
        let value = match (
            value,
            below
                .keys()
                .any(|path| path.starts_with("f:") || path.starts_with("k:")),
        ) {
            (Some(value), true) => project(below, value),
            (Some(value), false) => value.clone(),
            (None, _) => Value::Null,
        };
        part.insert(path.clone(), value);
    }
    Value::Object(part)
}
