//! Which names a definition gets: those that no other definition of its group has.

use super::Definition;
use super::definition::Names;

/// The names that a definition has from now on, and why it did not get all that it asked for.
pub struct Verdict {
    pub accepted: Names,
    pub conflict: Option<(&'static str, String)>,
}

/// Decides over the names of a definition; `before` are those that it has already.
pub fn decide<'a>(wanted: &Names, before: &Names, others: impl Iterator<Item = &'a Definition>) -> Verdict {
    let mut resources: Vec<&str> = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for other in others {
        let names = &other.accepted;
        resources.extend([names.plural.as_str(), names.singular.as_str()]);
        resources.extend(names.short_names.iter().map(String::as_str));
        kinds.extend([names.kind.as_str(), names.list_kind.as_str()]);
    }
    let fresh = |wanted: &str, before: &str, taken: &[&str]| -> Result<(), String> {
        match wanted == before || wanted.is_empty() || !taken.contains(&wanted) {
            true => Ok(()),
            false => Err(format!("{wanted:?} is already in use")),
        }
    };
    let mut accepted = before.clone();
    let mut conflict = None;
    let mut settle = |slot: &mut String, wanted: &str, before: &str, taken: &[&str], reason: &'static str| match fresh(
        wanted, before, taken,
    ) {
        Ok(()) => *slot = wanted.to_string(),
        Err(message) => conflict = Some((reason, message)),
    };
    settle(
        &mut accepted.plural,
        &wanted.plural,
        &before.plural,
        &resources,
        "PluralConflict",
    );
    settle(
        &mut accepted.singular,
        &wanted.singular,
        &before.singular,
        &resources,
        "SingularConflict",
    );
    settle(&mut accepted.kind, &wanted.kind, &before.kind, &kinds, "KindConflict");
    settle(
        &mut accepted.list_kind,
        &wanted.list_kind,
        &before.list_kind,
        &kinds,
        "ListKindConflict",
    );
    let taken: Vec<String> = wanted
        .short_names
        .iter()
        .filter(|name| !before.short_names.contains(name))
        .filter_map(|name| fresh(name, "", &resources).err())
        .collect();
    match taken.as_slice() {
        [] => accepted.short_names = wanted.short_names.clone(),
        [only] => conflict = conflict.or(Some(("ShortNamesConflict", only.clone()))),
        many => conflict = conflict.or(Some(("ShortNamesConflict", format!("[{}]", many.join(", "))))),
    }
    accepted.categories = wanted.categories.clone();
    Verdict { accepted, conflict }
}
