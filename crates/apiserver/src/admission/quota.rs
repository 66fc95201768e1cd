//! ResourceQuota: what a namespace may hold.
//!
//! A write that would exceed a quota is refused; one that fits is charged to the quota's status before it is
//! stored, with a compare-and-swap, so that two writes at once cannot both take the last place. The quota
//! controller corrects the charge of a write that failed afterwards.

mod usage;

use super::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::store::{Key, StoreError, Write};
use crate::verbs::{Call, encode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_machinery::quantity::Quantity;
pub use usage::Usage;

/// How often a charge is tried again when another one came between.
const ATTEMPTS: usize = 20;

pub async fn validate(call: &Call, review: &Review) -> Result<()> {
    let counted = review.resource.namespaced
        && review.subresource.is_empty()
        && matches!(review.operation, Operation::Create | Operation::Update)
        && review.resource.plural != "resourcequotas";
    let Some(object) = review.object.as_ref().filter(|_| counted) else {
        return Ok(());
    };
    let quotas = call.shared.admission.quotas(&review.namespace);
    if quotas.is_empty() {
        return Ok(());
    }
    let new = usage::of(&review.resource, object);
    let old = match (review.operation, review.old.as_deref()) {
        (Operation::Update, Some(old)) => usage::of(&review.resource, old),
        _ => Usage::new(),
    };
    for quota in quotas {
        if usage::in_scope(&quota, &review.resource, object) {
            charge(call, review, &quota, object, &new, &old).await?;
        }
    }
    Ok(())
}

/// What the write adds, of the resources that this quota limits.
fn delta(quota: &Value, new: &Usage, old: &Usage) -> Usage {
    let hard = quota["status"]["hard"]
        .as_object()
        .or(quota["spec"]["hard"].as_object());
    let mut delta = Usage::new();
    for name in hard.into_iter().flatten().map(|(name, _)| name) {
        let change = match (new.get(name), old.get(name)) {
            (Some(new), Some(old)) => new.clone() - old,
            (Some(new), None) => new.clone(),
            (None, _) => continue,
        };
        if !change.is_zero() && !change.is_negative() {
            delta.insert(name.clone(), change);
        }
    }
    delta
}

fn amounts(map: &Value) -> Usage {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), super::pods::amount(value)?)))
        .collect()
}

async fn charge(
    call: &Call,
    review: &Review,
    quota: &Arc<Value>,
    object: &Value,
    new: &Usage,
    old: &Usage,
) -> Result<()> {
    let refuse = |why: String| {
        Err(ApiError::forbidden(
            &review.resource.group_resource(),
            &review.name,
            why,
        ))
    };
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(missing) = usage::unspecified(quota, &review.resource, object) {
        return refuse(format!("failed quota: {name}: must specify {missing}"));
    }
    let key = Key::new("/resourcequotas", review.namespace.as_str(), name);
    for _ in 0..ATTEMPTS {
        let Some(record) = call
            .shared
            .store
            .get(&key)
            .await
            .map_err(|error| call.store_error(error, name))?
        else {
            // The quota is gone, and so is its limit.
            return Ok(());
        };
        let mut current = (*record.value()).clone();
        let delta = delta(&current, new, old);
        if delta.is_empty() {
            return Ok(());
        }
        let (hard, used) = (amounts(&current["status"]["hard"]), amounts(&current["status"]["used"]));
        let unknown: Vec<&str> = delta
            .keys()
            .filter(|name| !used.contains_key(*name))
            .map(String::as_str)
            .collect();
        if !unknown.is_empty() {
            return refuse(format!(
                "status unknown for quota: {name}, resources: {}",
                unknown.join(",")
            ));
        }
        let mut exceeded: Vec<&String> = Vec::new();
        let mut after = used.clone();
        for (resource, change) in &delta {
            let sum = match used.get(resource) {
                Some(used) => used.clone() + change,
                None => change.clone(),
            };
            if hard.get(resource).is_some_and(|hard| sum > *hard) {
                exceeded.push(resource);
            }
            after.insert(resource.clone(), sum);
        }
        if !exceeded.is_empty() {
            let shown = |amounts: &Usage| shown(amounts, &exceeded);
            return refuse(format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                shown(&delta),
                shown(&used),
                shown(&hard)
            ));
        }
        if review.dry_run {
            return Ok(());
        }
        let used: BTreeMap<String, String> = after
            .iter()
            .map(|(name, amount)| (name.clone(), amount.to_string()))
            .collect();
        current["status"]["used"] = json!(used);
        let write = Write::Update {
            key: key.clone(),
            draft: encode::draft(&current),
            expect: record.revision,
        };
        match call.shared.store.write(write).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict { .. } | StoreError::NotFound) => {}
            Err(error) => return Err(call.store_error(error, name)),
        }
    }
    Err(ApiError::modified(&call.group_resource(), name))
}

/// `cpu=1,memory=2Gi` of the resources that are over the limit.
fn shown(amounts: &Usage, names: &[&String]) -> String {
    let pairs: Vec<String> = names
        .iter()
        .filter_map(|name| amounts.get(*name).map(|amount: &Quantity| format!("{name}={amount}")))
        .collect();
    pairs.join(",")
}
