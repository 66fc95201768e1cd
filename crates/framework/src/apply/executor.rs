//! One plan, carried out against the API server.

use super::compare::{Verdict, compare, owned_part};
use super::desired::{Desired, RootFacts, complete};
use super::memory::{Fact, Memory, hash};
use super::wars::Wars;
use super::{ROOT_ANNOTATION, ROOT_UID_LABEL};
use crate::controller::{Life, LiveObject};
use crate::error::Error;
use crate::key::Key;
use crate::kind::Kind;
use crate::plan::{Deletion, Ownership, Plan, Prune, Replace};
use crate::reconciler::Context;
use crate::writer::{Draft, Propagation, Verb};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::time::Instant;

/// A resourceVersion that no object ever has again. An apply that carries it creates an object, and conflicts
/// with one that exists: this is how "create, but never take over" is said to server-side apply.
const NEVER: &str = "1";

/// What an operator keeps from run to run.
#[derive(Default)]
pub(crate) struct Experience {
    pub memory: Memory,
    pub wars: Wars,
}

/// Carries out the parts of a plan that are objects.
pub(crate) struct Executor<'a> {
    pub context: &'a Context,
    pub root: &'a RootFacts,
    pub experience: &'a Experience,
    /// The root's generation when the plan was made: what to delete follows from it.
    pub generation: Option<i64>,
    /// Whether the root is still the one that the run started with.
    pub still_current: &'a (dyn Fn() -> bool + Send + Sync),
}

/// What an executor has to report besides success.
#[derive(Default, Debug)]
pub(crate) struct Report {
    /// Fields that another manager insists on, and that we leave alone.
    pub conceded: Vec<String>,
    /// Those of them that were given up in this very run.
    pub given_up: Vec<String>,
    /// Children that wait to be gone before they can be made again.
    pub leaving: Vec<String>,
    /// Children that were deleted because a field of them cannot be changed.
    pub replaced: Vec<String>,
}

impl Executor<'_> {
    /// Applies, deletes and prunes. The children are taken out of the plan: nobody needs them afterwards, and a copy of each
    /// would be a good part of what a run costs that changes nothing.
    pub async fn children(&self, plan: &mut Plan) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut wanted = HashSet::new();
        for child in std::mem::take(&mut plan.children) {
            let desired = complete(child, self.root);
            wanted.insert((desired.kind.clone(), desired.key.clone()));
            self.child(desired, &mut report).await?;
        }
        for deletion in &plan.deletions {
            self.delete(deletion).await?;
        }
        match plan.prune {
            Prune::Absent => self.prune(&wanted).await?,
            Prune::Nothing => {}
        }
        Ok(report)
    }

    async fn child(&self, desired: Desired, report: &mut Report) -> Result<(), Error> {
        let wish = hash(&desired.object);
        let (kind, key) = (&desired.kind, &desired.key);
        let Some(live) = self.live(kind, key).await? else {
            return self.create(&desired, wish).await;
        };
        let meta = live.metadata();
        self.must_be_ours(&desired, meta)?;
        if meta.deletion_timestamp.is_some() {
            report.leaving.push(format!("{kind} {key}"));
            return Ok(());
        }
        let fact = self.experience.memory.get(kind, key);
        let known = fact
            .as_ref()
            .filter(|fact| Some(&fact.uid) == meta.uid.as_ref() && fact.wish == wish);
        let conceded = self.conceded(&desired);
        report
            .conceded
            .extend(conceded.iter().map(|field| format!("{kind} {key} {field}")));
        if known.is_some_and(|fact| Some(&fact.version) == meta.resource_version.as_ref()) {
            return Ok(());
        }
        let live_json = live.to_json();
        let mut object = desired.object.clone();
        remove_fields(&mut object, &conceded);
        let manager = self.context.writer.manager();
        let verdict = compare(&object, &live_json, manager);
        let owned = hash(&owned_part(&live_json, manager));
        // The server's own rendering of this very wish is what we wanted, however it looks.
        let rendered = known.is_some_and(|fact| fact.owned == owned);
        match verdict {
            Verdict::Same => {}
            Verdict::Unsure | Verdict::Differs(_) if rendered => {}
            Verdict::Unsure => return self.change(&desired, object, meta, live_json, report).await,
            Verdict::Differs(places) => {
                if known.is_some() {
                    self.taken_back(&desired, &places, &mut object, report);
                    // What is left may be nothing to fight about.
                    if compare(&object, &live_json, manager) == Verdict::Same {
                        return Ok(());
                    }
                }
                return self.change(&desired, object, meta, live_json, report).await;
            }
        }
        self.remember(&desired, meta.uid.clone(), meta.resource_version.clone(), wish, owned);
        Ok(())
    }

    /// Somebody changed what we had set, and we had not changed our mind.
    fn taken_back(&self, desired: &Desired, places: &[String], object: &mut Value, report: &mut Report) {
        let fields: Vec<_> = places
            .iter()
            .filter(|place| !place.is_empty())
            .map(|place| (place.clone(), wish_at(&desired.object, place)))
            .collect();
        let (kind, key) = (&desired.kind, &desired.key);
        let lost = self.experience.wars.taken_back(kind, key, &fields, Instant::now());
        let named: Vec<_> = lost.iter().map(|field| format!("{kind} {key} {field}")).collect();
        report.given_up.extend(named.iter().cloned());
        report.conceded.extend(named);
        remove_fields(object, &lost);
    }

    fn conceded(&self, desired: &Desired) -> Vec<String> {
        let at = |field: &str| wish_at(&desired.object, field);
        self.experience.wars.conceded(&desired.kind, &desired.key, at)
    }

    /// From the cache where it is complete, else from the API.
    async fn live(&self, kind: &Kind, key: &Key) -> Result<Option<Arc<dyn LiveObject>>, Error> {
        let mut complete = false;
        for store in self.context.owned.iter().filter(|store| store.kind() == kind) {
            if let Some(found) = store.find(key) {
                return Ok(Some(found));
            }
            complete |= store.is_complete();
        }
        if complete {
            return Ok(None);
        }
        let value = self.context.writer.read_dynamic(kind, key).await?;
        Ok(value.map(|value| Arc::new(Fetched::new(value)) as Arc<dyn LiveObject>))
    }

    async fn create(&self, desired: &Desired, wish: u64) -> Result<(), Error> {
        let mut body = desired.object.clone();
        body["metadata"]["resourceVersion"] = json!(NEVER);
        let conceded = self.conceded(desired);
        remove_fields(&mut body, &conceded);
        self.send(desired, body, None, wish).await
    }

    /// Changes a child, or replaces one that cannot be changed if the plan allows that.
    async fn change(
        &self,
        desired: &Desired,
        object: Value,
        meta: &ObjectMeta,
        live: Value,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut body = object;
        body["metadata"]["uid"] = json!(meta.uid);
        body["metadata"]["resourceVersion"] = json!(meta.resource_version);
        let wish = hash(&desired.object);
        match (self.send(desired, body, Some(live), wish).await, desired.replace) {
            (Err(error), Replace::WhenImmutable) if error.is_immutable() => {
                self.delete(&Deletion {
                    kind: desired.kind.clone(),
                    key: desired.key.clone(),
                    uid: meta.uid.clone().unwrap_or_default(),
                    why: "a field of it cannot be changed; it is made anew".to_owned(),
                })
                .await?;
                let child = format!("{} {}", desired.kind, desired.key);
                report.replaced.push(child.clone());
                report.leaving.push(child);
                Ok(())
            }
            (result, _) => result,
        }
    }

    async fn send(&self, desired: &Desired, body: Value, before: Option<Value>, wish: u64) -> Result<(), Error> {
        self.must_be_current()?;
        let (kind, key) = (desired.kind.clone(), desired.key.clone());
        if self.experience.wars.is_loop(&kind, &key, wish, Instant::now()) {
            self.context.metrics.hot_loop(&self.context.controller);
            return Err(Error::HotLoop {
                kind: Box::new(kind),
                key,
            });
        }
        self.experience.memory.forget(&kind, &key);
        let mut draft = Draft::new(Verb::Apply, kind.clone(), key.clone(), body);
        draft.before = before;
        let answer = self.context.writer.send(draft).await?;
        self.experience.wars.wrote(&kind, &key, wish, Instant::now());
        let owned = hash(&owned_part(&answer, self.context.writer.manager()));
        let text = |field: &str| answer["metadata"][field].as_str().map(str::to_owned);
        self.remember(desired, text("uid"), text("resourceVersion"), wish, owned);
        Ok(())
    }

    fn remember(&self, desired: &Desired, uid: Option<String>, version: Option<String>, wish: u64, owned: u64) {
        let (Some(uid), Some(version)) = (uid, version) else {
            return;
        };
        let fact = Fact {
            uid,
            version,
            wish,
            owned,
        };
        self.experience.memory.keep(&desired.kind, &desired.key, fact);
    }

    /// An object under our child's name that belongs to somebody else is left alone.
    fn must_be_ours(&self, desired: &Desired, meta: &ObjectMeta) -> Result<(), Error> {
        let foreign = |owner: String| {
            Err(Error::NotOurs {
                kind: Box::new(desired.kind.clone()),
                key: desired.key.clone(),
                owner,
            })
        };
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let label = meta.labels.as_ref().and_then(|labels| labels.get(ROOT_UID_LABEL));
        match (desired.ownership, controller, label) {
            (Ownership::Controlled, Some(owner), _) if owner.uid == self.root.uid => Ok(()),
            (Ownership::Labelled, None, Some(uid)) if *uid == self.root.uid => Ok(()),
            (_, Some(owner), _) => foreign(format!("controlled by {} {}", owner.kind, owner.name)),
            (_, None, Some(_)) => {
                let root = meta
                    .annotations
                    .as_ref()
                    .and_then(|annotations| annotations.get(ROOT_ANNOTATION));
                foreign(format!("owned by {}", root.map_or("another root", String::as_str)))
            }
            (_, None, None) => foreign("not managed by us".to_owned()),
        }
    }

    fn must_be_current(&self) -> Result<(), Error> {
        match (self.still_current)() {
            true => Ok(()),
            false => Err(Error::Superseded {
                kind: Box::new(self.root.kind.clone()),
                key: self.root.key.clone(),
            }),
        }
    }

    /// Deletes children of the root that the plan does not have.
    async fn prune(&self, wanted: &HashSet<(Kind, Key)>) -> Result<(), Error> {
        let mut left = Vec::new();
        for store in self.context.owned.iter().filter(|store| store.life() == Life::Pruned) {
            for live in store.of_root(&self.root.uid) {
                let meta = live.metadata();
                let key = Key::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
                let name = (store.kind().clone(), key);
                if meta.deletion_timestamp.is_none() && !wanted.contains(&name) {
                    left.push(Deletion {
                        kind: name.0,
                        key: name.1,
                        uid: meta.uid.clone().unwrap_or_default(),
                        why: "it is not in the plan any more".to_owned(),
                    });
                }
            }
        }
        for deletion in &left {
            self.delete(deletion).await?;
        }
        Ok(())
    }

    /// Deletes what the plan meant and nothing else: both the root, whose plan this is, and the object are read
    /// again from the API first, because the cache may be older than either.
    async fn delete(&self, deletion: &Deletion) -> Result<(), Error> {
        self.must_be_current()?;
        let superseded = || Error::Superseded {
            kind: Box::new(self.root.kind.clone()),
            key: self.root.key.clone(),
        };
        let writer = &self.context.writer;
        let root = writer
            .read_dynamic(&self.root.kind, &self.root.key)
            .await?
            .ok_or_else(superseded)?;
        let meta = &root["metadata"];
        if meta["uid"] != json!(self.root.uid) || meta["generation"].as_i64() != self.generation {
            return Err(superseded());
        }
        let Some(live) = writer.read_dynamic(&deletion.kind, &deletion.key).await? else {
            return Ok(());
        };
        let live = &live["metadata"];
        if live["uid"] != json!(deletion.uid) || !live["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let preconditions = json!({"uid": live["uid"], "resourceVersion": live["resourceVersion"]});
        self.experience.memory.forget(&deletion.kind, &deletion.key);
        tracing::info!(kind = %deletion.kind, key = %deletion.key, why = deletion.why, "deleting");
        let (kind, key) = (deletion.kind.clone(), deletion.key.clone());
        writer
            .delete_dynamic(kind, key, preconditions, Propagation::Background)
            .await
    }
}

/// The hash of what a wish has at a JSON pointer.
fn wish_at(wish: &Value, place: &str) -> u64 {
    hash(wish.pointer(place).unwrap_or(&Value::Null))
}

/// Takes fields out of a wish, by JSON pointer. Items of lists are taken out last to first, so that positions
/// stay right.
fn remove_fields(object: &mut Value, places: &[String]) {
    let mut places: Vec<_> = places.iter().collect();
    // By position and not by its digits, or the tenth item would come before the second.
    places.sort_by_cached_key(|place| {
        let segments = place
            .split('/')
            .map(|segment| (segment.parse::<u64>().ok(), segment.to_owned()));
        segments.collect::<Vec<_>>()
    });
    for place in places.into_iter().rev() {
        let Some((parent, name)) = place.rsplit_once('/') else {
            continue;
        };
        let name = name.replace("~1", "/").replace("~0", "~");
        match object.pointer_mut(parent) {
            Some(Value::Object(fields)) => {
                fields.remove(&name);
            }
            Some(Value::Array(items)) => {
                if let Ok(position) = name.parse::<usize>()
                    && position < items.len()
                {
                    items.remove(position);
                }
            }
            _ => {}
        }
    }
}

/// An object that was read past the cache.
struct Fetched {
    meta: ObjectMeta,
    value: Value,
}

impl Fetched {
    fn new(value: Value) -> Self {
        Fetched {
            meta: serde_json::from_value(value["metadata"].clone()).unwrap_or_default(),
            value,
        }
    }
}

impl LiveObject for Fetched {
    fn metadata(&self) -> &ObjectMeta {
        &self.meta
    }

    fn to_json(&self) -> Value {
        self.value.clone()
    }
}
