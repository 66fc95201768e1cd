//! Which endpoint is in which slice. Pure.
//!
//! Everybody who watches a Service reads each slice that changes. So an endpoint stays in the slice it is in, and a
//! new one goes where something is written anyway; only then are slices filled up or made.

use super::build::LARGEST_SLICE;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A slice as it shall be.
#[derive(Debug, PartialEq)]
pub struct Arranged {
    /// `None` for a new one.
    pub name: Option<String>,
    pub endpoints: Vec<Endpoint>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AsItWas,
    Changed,
}

impl Arranged {
    /// A slice that says that there is nobody.
    pub fn empty(name: Option<String>) -> Self {
        Arranged {
            name,
            endpoints: Vec::new(),
            state: State::Changed,
        }
    }
}

/// Whose address an endpoint is: that stays while its conditions change.
fn identity(endpoint: &Endpoint) -> (Option<&str>, &[String]) {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
    (uid, &endpoint.addresses)
}

/// The endpoints in slices, with as few changes as possible to those that are there. Slices that would be empty are
/// left out.
pub fn arrange(wanted: Vec<Endpoint>, have: &[&EndpointSlice]) -> Vec<Arranged> {
    let mut rest: Vec<Option<Endpoint>> = wanted.iter().cloned().map(Some).collect();
    let positions: HashMap<_, _> = wanted.iter().enumerate().map(|(at, one)| (identity(one), at)).collect();
    let mut arranged: Vec<Arranged> = Vec::new();
    for slice in have {
        let before = slice.endpoints.as_deref().unwrap_or_default();
        let kept = before
            .iter()
            .filter_map(|old| rest[*positions.get(&identity(old))?].take());
        let endpoints: Vec<Endpoint> = kept.collect();
        let state = match endpoints == before {
            true => State::AsItWas,
            false => State::Changed,
        };
        if !endpoints.is_empty() {
            let name = slice.metadata.name.clone();
            arranged.push(Arranged { name, endpoints, state });
        }
    }
    let mut rest: Vec<Endpoint> = rest.into_iter().flatten().collect();
    let room = |slice: &Arranged| LARGEST_SLICE.saturating_sub(slice.endpoints.len());
    let mut open: Vec<&mut Arranged> = arranged
        .iter_mut()
        .filter(|slice| slice.state == State::Changed)
        .collect();
    open.sort_by_key(|slice| Reverse(slice.endpoints.len()));
    for slice in open {
        let fitting = room(slice).min(rest.len());
        slice.endpoints.extend(rest.drain(..fitting));
    }
    let fresh = |endpoints: Vec<Endpoint>| Arranged {
        name: None,
        endpoints,
        state: State::Changed,
    };
    while rest.len() >= LARGEST_SLICE {
        let full = rest.drain(..LARGEST_SLICE).collect();
        arranged.push(fresh(full));
    }
    if !rest.is_empty() {
        let fitting = arranged.iter_mut().filter(|slice| room(slice) >= rest.len());
        match fitting.max_by_key(|slice| slice.endpoints.len()) {
            Some(slice) => {
                slice.endpoints.append(&mut rest);
                slice.state = State::Changed;
            }
            None => arranged.push(fresh(rest)),
        }
    }
    arranged
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::core::ObjectMeta;
    use std::ops::Range;

    fn endpoint(number: usize) -> Endpoint {
        Endpoint {
            addresses: vec![format!("10.0.{}.{}", number / 250, number % 250)],
            target_ref: Some(ObjectReference {
                uid: Some(number.to_string()),
                ..ObjectReference::default()
            }),
            ..Endpoint::default()
        }
    }

    fn endpoints(numbers: Range<usize>) -> Vec<Endpoint> {
        numbers.map(endpoint).collect()
    }

    fn slice(name: &str, numbers: Range<usize>) -> EndpointSlice {
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(name.to_string()),
                ..ObjectMeta::default()
            },
            endpoints: Some(endpoints(numbers)),
            ..EndpointSlice::default()
        }
    }

    /// Each slice as its name, how many endpoints it has, and whether it is written.
    fn told(arranged: &[Arranged]) -> Vec<String> {
        let tell = |slice: &Arranged| {
            let name = slice.name.as_deref().unwrap_or("new");
            format!("{name} {} {:?}", slice.endpoints.len(), slice.state)
        };
        arranged.iter().map(tell).collect()
    }

    #[test]
    fn the_first_slices_are_full_ones_and_a_rest() {
        assert_eq!(
            told(&arrange(endpoints(0..250), &[])),
            ["new 100 Changed", "new 100 Changed", "new 50 Changed"]
        );
        assert_eq!(told(&arrange(Vec::new(), &[])), Vec::<String>::new());
    }

    #[test]
    fn one_that_leaves_changes_no_slice_but_its_own() {
        let (a, b) = (slice("a", 0..100), slice("b", 100..150));
        let mut wanted = endpoints(0..150);
        wanted.remove(5);
        let arranged = arrange(wanted, &[&a, &b]);
        assert_eq!(told(&arranged), ["a 99 Changed", "b 50 AsItWas"]);
    }

    #[test]
    fn one_that_comes_for_another_takes_its_slice() {
        let (a, b) = (slice("a", 0..100), slice("b", 100..150));
        let mut wanted = endpoints(0..151);
        wanted.remove(5);
        let arranged = arrange(wanted, &[&a, &b]);
        assert_eq!(told(&arranged), ["a 100 Changed", "b 50 AsItWas"]);
        assert_eq!(arranged[0].endpoints.last(), Some(&endpoint(150)));
    }

    #[test]
    fn those_that_come_fill_the_fullest_slice_that_has_room_for_all() {
        let (a, b) = (slice("a", 0..60), slice("b", 100..190));
        let mut wanted = endpoints(0..60);
        wanted.extend(endpoints(100..200));
        assert_eq!(
            told(&arrange(wanted.clone(), &[&a, &b])),
            ["a 60 AsItWas", "b 100 Changed"]
        );
        wanted.extend(endpoints(200..220));
        assert_eq!(told(&arrange(wanted, &[&a, &b])), ["a 90 Changed", "b 90 AsItWas"]);
    }

    #[test]
    fn a_slice_that_is_left_empty_goes() {
        let (a, b) = (slice("a", 0..100), slice("b", 100..101));
        assert_eq!(told(&arrange(endpoints(0..100), &[&a, &b])), ["a 100 AsItWas"]);
    }
}
