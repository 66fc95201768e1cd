//! Which addresses the pods of a node that joins get: those of no other node.
//!
//! Joined nodes have networks of their own, and nobody above them gives addresses out. So they write down in one object
//! who has which range; of two that join at once, the API server refuses one, which looks again. That object may have been
//! lost or changed, so what the nodes that exist say of themselves (`spec.podCIDR`) counts as much.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Client;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use std::collections::{BTreeMap, BTreeSet};
use stead_cluster::node::network::range::{RANGES, Range};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "stead-pod-ranges";
/// How often others may be faster.
const TRIES: usize = 20;

/// Takes a range for a node, or finds the one that it has.
pub async fn claim(client: &Client, node: &str) -> Result<Range> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let how = PostParams::default();
    for _ in 0..TRIES {
        let found = maps.get_opt(NAME).await.context("cannot read who has which range")?;
        let before = found.as_ref().and_then(|map| map.data.clone()).unwrap_or_default();
        let (number, data) = choose(node, &before, &said(client).await?).context("every range is taken")?;
        if data == before {
            return Ok(Range::Joined(number));
        }
        let mut map = found.unwrap_or_else(|| ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        });
        map.data = Some(data);
        // With the version that was read: a write in between makes this one fail.
        let written = match map.metadata.resource_version {
            Some(_) => maps.replace(NAME, &how, &map).await,
            None => maps.create(&how, &map).await,
        };
        match written {
            Ok(_) => return Ok(Range::Joined(number)),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("cannot write who has which range"),
        }
    }
    bail!("others write down who has which range all the time")
}

/// What nodes that exist say of their range.
type Said = BTreeMap<String, Option<u8>>;

/// The range for a node, and who has which range then: the one that its object says, since that never changes, or that is
/// written down for it, unless another has it too; else the first that nobody has. Nodes that are gone keep theirs for
/// when they come back, as long as there are enough.
fn choose(node: &str, written: &BTreeMap<String, String>, said: &Said) -> Option<(u8, BTreeMap<String, String>)> {
    let pick = |mut kept: BTreeMap<String, String>| {
        let own = [
            said.get(node).copied().flatten(),
            kept.remove(node).as_deref().and_then(number),
        ];
        let others = said.iter().filter(|(name, _)| *name != node);
        let taken: BTreeSet<u8> = kept
            .values()
            .filter_map(|text| number(text))
            .chain(others.filter_map(|(_, range)| *range))
            .collect();
        let mut offered = own.into_iter().flatten().chain(0..RANGES);
        let number = offered.find(|number| !taken.contains(number))?;
        kept.insert(node.to_owned(), number.to_string());
        Some((number, kept))
    };
    pick(written.clone()).or_else(|| {
        let there = written.iter().filter(|(name, _)| said.contains_key(*name));
        pick(there.map(|(name, text)| (name.clone(), text.clone())).collect())
    })
}

/// A range for a node that cannot ask: the same whenever it joins, and rarely another's.
pub fn guess(node: &str) -> Range {
    let sum = node
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let number = sum % u32::from(RANGES);
    Range::Joined(u8::try_from(number).unwrap_or_default())
}

fn number(text: &str) -> Option<u8> {
    text.parse().ok().filter(|number| *number < RANGES)
}

async fn said(client: &Client) -> Result<Said> {
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default()).await;
    let listed = listed.context("cannot list the nodes")?;
    let said = listed.items.into_iter().filter_map(|node| {
        let range = node.spec.and_then(|spec| spec.pod_cidr);
        Some((node.metadata.name?, range.as_deref().and_then(Range::number)))
    });
    Ok(said.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(entries: &[(&str, u8)]) -> BTreeMap<String, String> {
        let entries = entries.iter();
        entries
            .map(|(name, number)| ((*name).to_owned(), number.to_string()))
            .collect()
    }

    fn said(entries: &[(&str, Option<u8>)]) -> Said {
        let entries = entries.iter();
        entries.map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    fn chosen(node: &str, written: &BTreeMap<String, String>, said: &Said) -> Option<u8> {
        choose(node, written, said).map(|(number, _)| number)
    }

    #[test]
    fn a_range_is_given_once_and_kept() {
        assert_eq!(chosen("n", &written(&[]), &said(&[])), Some(0));
        let taken = written(&[("a", 0), ("b", 1), ("c", 3)]);
        let (number, then) = choose("n", &taken, &said(&[])).unwrap();
        assert_eq!((number, then.len()), (2, 4));
        assert_eq!(choose("n", &then, &said(&[])), Some((2, then.clone())));
    }

    #[test]
    fn what_nodes_say_of_themselves_counts_as_much_as_what_is_written_down() {
        let nodes = said(&[("a", Some(0)), ("b", Some(1)), ("n", None)]);
        assert_eq!(
            chosen("n", &written(&[("a", 0)]), &nodes),
            Some(2),
            "b is not written down"
        );
        assert_eq!(chosen("n", &written(&[("n", 1)]), &nodes), Some(2), "b has it");
        let nodes = said(&[("a", Some(0)), ("n", Some(5))]);
        assert_eq!(chosen("n", &written(&[]), &nodes), Some(5), "its pods have it");
        assert_eq!(chosen("n", &written(&[("n", 7)]), &nodes), Some(5));
        assert_eq!(chosen("n", &written(&[("a", 5), ("n", 7)]), &nodes), Some(7));
    }

    #[test]
    fn ranges_of_nodes_that_are_gone_are_given_away_when_there_are_no_others() {
        let full: BTreeMap<_, _> = (0..RANGES)
            .map(|number| (format!("n{number}"), number.to_string()))
            .collect();
        let mut nodes: Said = (0..RANGES).map(|number| (format!("n{number}"), Some(number))).collect();
        assert_eq!(chosen("new", &full, &nodes), None);
        nodes.remove("n9");
        assert_eq!(chosen("new", &full, &nodes), Some(9));
    }

    #[test]
    fn what_is_no_number_of_a_range_is_none() {
        assert_eq!(
            ["0", "127", "128", "-1", "x"].map(number),
            [Some(0), Some(127), None, None, None]
        );
    }
}
