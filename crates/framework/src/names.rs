//! Names of children, whatever their root is called.
//!
//! An object's name may have 253 characters and dots in it; a Service's name and a label's value may not, and
//! names from outside of the cluster may be anything. A name that fits is kept; any other becomes a readable part
//! and a hash of the whole, the same each time, so that two long names stay two.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The longest name that every kind accepts, and the longest value of a label.
pub const LONGEST: usize = 63;
/// Characters of the hash in a name that was made to fit.
const HASH: usize = 10;

/// A name for a child of a root: the root's own name with a suffix, if that is valid everywhere.
///
/// ```
/// use stead::names;
/// assert_eq!(names::child("web", "config"), "web-config");
/// let long = names::child(&"a".repeat(253), "config");
/// assert!(long.len() <= 63 && long.ends_with("-config"));
/// assert_ne!(names::child("Zürich", "a"), names::child("Zurich", "a"));
/// ```
pub fn child(root: &str, suffix: &str) -> String {
    match suffix.is_empty() {
        true => fitted(root, LONGEST, First::Letter),
        false => {
            let suffix = fitted(suffix, LONGEST / 2, First::LetterOrDigit);
            let room = LONGEST - suffix.len() - 1;
            format!("{}-{suffix}", fitted(root, room, First::Letter))
        }
    }
}

/// A valid value of a label that stands for any text.
///
/// ```
/// assert_eq!(stead::names::label_value("web"), "web");
/// assert!(stead::names::label_value("a name with spaces").starts_with("a-name-with-spaces-"));
/// ```
pub fn label_value(text: &str) -> String {
    fitted(text, LONGEST, First::LetterOrDigit)
}

/// What a name may begin with. Not every kind accepts a digit.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Letter,
    LetterOrDigit,
}

/// The text itself where it is a DNS label that fits, else as much of it as is readable, and a hash.
fn fitted(text: &str, longest: usize, first: First) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = |c: char| c.is_ascii_lowercase() || (first == First::LetterOrDigit && c.is_ascii_digit());
    let valid = text.starts_with(begins) && !text.ends_with('-') && text.chars().all(plain);
    if valid && text.len() <= longest {
        return text.to_owned();
    }
    let mut hash = String::with_capacity(HASH);
    for byte in Sha256::digest(text.as_bytes()).iter().take(HASH / 2) {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    let readable: String = text
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if plain(c) { c } else { '-' })
        .skip_while(|c| !begins(*c))
        .take(longest.saturating_sub(HASH + 1))
        .collect();
    match readable.trim_end_matches('-') {
        // A hash may begin with a digit.
        "" => format!("x{}", &hash[..hash.len().min(longest.saturating_sub(1))]),
        readable => format!("{readable}-{hash}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_machinery::names::{dns1035_label, label_value as complaints};

    #[test]
    fn f36_names_that_fit_are_kept_and_long_or_foreign_ones_stay_different() {
        assert_eq!(child("web", "0"), "web-0");
        let (one, other) = ("a".repeat(253), "a".repeat(252) + "b");
        assert_ne!(child(&one, "0"), child(&other, "0"));
        assert_ne!(child("shop.eu", ""), child("shop-eu", ""));
        assert_ne!(child("東京", ""), child("大阪", ""));
    }

    proptest! {
        #[test]
        fn f36_whatever_a_root_is_called_its_childs_name_is_valid_everywhere(
            root in "\\PC{0,300}", suffix in "[a-z0-9]{0,70}"
        ) {
            let name = child(&root, &suffix);
            prop_assert_eq!(dns1035_label(&name), Vec::<String>::new(), "{}", name);
            prop_assert_eq!(complaints(&name), Vec::<String>::new());
            prop_assert_eq!(&name, &child(&root, &suffix));
        }
    }
}
