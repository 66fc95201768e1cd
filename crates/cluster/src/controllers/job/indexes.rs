//! Sets of completion indexes, written as Kubernetes writes them: `0,2-4`.

use std::collections::BTreeSet;
use std::fmt;

/// Indexes in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(pub BTreeSet<i32>);

impl Indexes {
    /// Reads `0,2-4`; what is not a number below `end` is left out.
    pub fn parse(text: &str, end: i32) -> Self {
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.trim().parse::<i32>(), last.trim().parse::<i32>()) {
                all.extend(first.max(0)..last.saturating_add(1).min(end));
            }
        }
        Indexes(all)
    }

    pub fn len(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(i32, i32)> = Vec::new();
        for index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => runs.push((*index, *index)),
            }
        }
        let texts: Vec<String> = runs
            .iter()
            .map(|(first, last)| match last - first {
                0 => format!("{first}"),
                1 => format!("{first},{last}"),
                _ => format!("{first}-{last}"),
            })
            .collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_in_runs_and_read_back() {
        let indexes = Indexes([0, 2, 3, 5, 6, 7].into());
        assert_eq!(indexes.to_string(), "0,2,3,5-7");
        assert_eq!(Indexes::parse("0,2,3,5-7", 10), indexes);
        assert_eq!(Indexes::parse("1-99999999,x,-3", 3), Indexes([1, 2].into()));
        assert_eq!(Indexes::parse("", 3), Indexes::default());
    }
}
