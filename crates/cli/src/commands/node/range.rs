//! Which addresses the pods of a node that joins get: those of no other node.
//!
//! Joined nodes have networks of their own, and nobody above them gives addresses out. So they write down in one object
//! who has which range; of two that join at once, the API server refuses one, which looks again.

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
        let data = found.as_ref().and_then(|map| map.data.clone()).unwrap_or_default();
        if let Some(number) = data.get(node).and_then(|text| number(text)) {
            return Ok(Range::Joined(number));
        }
        let (number, data) = match free(&data) {
            Some(number) => (number, data),
            None => {
                let there = names(client).await?;
                let kept: BTreeMap<_, _> = data.into_iter().filter(|(name, _)| there.contains(name)).collect();
                (free(&kept).context("every range is taken")?, kept)
            }
        };
        let mut map = found.unwrap_or_else(|| ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        });
        let mut data = data;
        data.insert(node.to_owned(), number.to_string());
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

/// The first range that nobody has.
fn free(data: &BTreeMap<String, String>) -> Option<u8> {
    let taken: BTreeSet<u8> = data.values().filter_map(|text| number(text)).collect();
    (0..RANGES).find(|number| !taken.contains(number))
}

async fn names(client: &Client) -> Result<BTreeSet<String>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list_metadata(&ListParams::default()).await;
    let listed = listed.context("cannot list the nodes")?;
    Ok(listed.items.into_iter().filter_map(|node| node.metadata.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(numbers: impl IntoIterator<Item = u8>) -> BTreeMap<String, String> {
        let numbers = numbers.into_iter();
        numbers
            .map(|number| (format!("n{number}"), number.to_string()))
            .collect()
    }

    #[test]
    fn a_range_is_given_once() {
        assert_eq!(free(&taken([])), Some(0));
        assert_eq!(free(&taken([0, 1, 3])), Some(2));
        assert_eq!(free(&taken(0..RANGES)), None);
    }

    #[test]
    fn what_is_no_number_of_a_range_is_none() {
        assert_eq!(
            ["0", "127", "128", "-1", "x"].map(number),
            [Some(0), Some(127), None, None, None]
        );
    }
}
