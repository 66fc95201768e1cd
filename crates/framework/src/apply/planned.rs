//! The reconciler around an operator: observe, plan, apply, tell.

use super::desired::RootFacts;
use super::executor::{Executor, Experience, Report};
use super::memory::{Fact, hash};
use crate::cache::Store;
use crate::error::Error;
use crate::key::Key;
use crate::kind::Kind;
use crate::outcome::{Dependency, Outcome};
use crate::plan::{Cleanup, Plan, Severity};
use crate::reconciler::{Context, Operator, Reconciler};
use crate::status;
use crate::writer::{Draft, Verb};
use kube::Resource;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// An operator as a reconciler.
pub(crate) struct Planned<O: Operator> {
    operator: O,
    roots: OnceLock<Store<O::Root>>,
    experience: Experience,
}

impl<O: Operator> Planned<O> {
    pub fn new(operator: O) -> Self {
        Planned {
            operator,
            roots: OnceLock::new(),
            experience: Experience::default(),
        }
    }
}

impl<O: Operator> Reconciler for Planned<O> {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let roots = self.roots.get_or_init(|| context.cache.store::<O::Root>());
        let Some(root) = roots.get(key) else {
            // Garbage collection and finalizers have done the rest.
            return Ok(Outcome::Settled);
        };
        let leaving = root.meta().deletion_timestamp.is_some();
        let has_finalizer = O::FINALIZER.is_some_and(|ours| finalizers(&*root).iter().any(|name| name == ours));
        // Without our finalizer our part is done.
        if leaving && O::FINALIZER.is_some() && !has_finalizer {
            return Ok(Outcome::Settled);
        }
        let mut run = Run {
            planned: self,
            context,
            roots,
            version: root.meta().resource_version.clone(),
            root,
        };
        if leaving && O::FINALIZER.is_none() {
            return run.say_farewell().await;
        }
        if let (Some(finalizer), false) = (O::FINALIZER, has_finalizer) {
            run.add_finalizer(finalizer).await?;
        }
        run.execute(leaving).await
    }
}

/// One run of one root.
struct Run<'a, O: Operator> {
    planned: &'a Planned<O>,
    context: &'a Context,
    roots: &'a Store<O::Root>,
    root: Arc<O::Root>,
    /// The root's resourceVersion, moved on by our own writes of it.
    version: Option<String>,
}

impl<O: Operator> Run<'_, O> {
    async fn execute(&mut self, leaving: bool) -> Result<Outcome, Error> {
        let operator = &self.planned.operator;
        let seen = operator.observe(self.context, &self.root).await?;
        let now = self.context.now();
        let mut plan = match leaving {
            false => operator.plan(&self.root, &seen, now),
            true => operator.cleanup(&self.root, &seen, now),
        };
        *self.context.plan.lock() = Some(plan.to_string());
        if let Some(mistake) = plan.mistakes.first() {
            return Err(Error::new(crate::Class::Bug, format!("the plan is wrong: {mistake}")));
        }
        let result = self.carry_out(&mut plan).await;
        self.tell(&plan, &result);
        match result {
            Ok(report) => {
                self.write_status(&plan, Ok(&report)).await?;
                self.finish(&plan, report, leaving).await
            }
            Err(error) => {
                // A run that was overtaken has nothing to say about the object any more.
                let silent = matches!(error, Error::NotLeader { .. } | Error::Superseded { .. });
                if !silent && !error.is_conflict() {
                    self.write_status(&plan, Err(&error)).await?;
                }
                Err(error)
            }
        }
    }

    /// For a root that goes and does not wait for us: garbage collection does the rest. It may wait for others for long;
    /// people see that it goes, and of the plan nothing but the status is carried out.
    async fn say_farewell(&mut self) -> Result<Outcome, Error> {
        let operator = &self.planned.operator;
        let seen = operator.observe(self.context, &self.root).await?;
        let plan = Plan {
            status: operator.plan(&self.root, &seen, self.context.now()).status,
            ..Plan::new()
        };
        *self.context.plan.lock() = Some(plan.to_string());
        match self.write_status(&plan, Ok(&Report::default())).await {
            // It is gone, or was changed and will be looked at again.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Settled),
            Err(error) => Err(error),
            Ok(()) => Ok(Outcome::Settled),
        }
    }

    async fn carry_out(&self, plan: &mut Plan) -> Result<Report, Error> {
        let uid = self.root.meta().uid.clone();
        let facts = RootFacts {
            kind: Kind::of::<O::Root>(),
            key: Key::of(&*self.root),
            uid: uid.clone().unwrap_or_default(),
        };
        let (roots, key) = (self.roots.clone(), facts.key.clone());
        let still_current = move || roots.get(&key).is_some_and(|root| root.meta().uid == uid);
        let executor = Executor {
            context: self.context,
            root: &facts,
            experience: &self.planned.experience,
            generation: self.root.meta().generation,
            still_current: &still_current,
        };
        let report = executor.children(plan).await?;
        for action in &plan.actions {
            self.planned.operator.act(self.context, &self.root, action).await?;
        }
        Ok(report)
    }

    fn tell(&self, plan: &Plan, result: &Result<Report, Error>) {
        let about = self.root.object_ref(&());
        let events = self.context.events();
        match result {
            Ok(report) => {
                for note in &plan.events {
                    events.tell(about.clone(), note.severity, &note.reason, "Reconcile", &note.message);
                }
                for child in &report.replaced {
                    let note = format!("{child} is deleted and made anew: a field of it cannot be changed");
                    events.tell(about.clone(), Severity::Normal, "Replaced", "Apply", &note);
                }
                for field in &report.given_up {
                    let note = format!("{field} is set by another manager again and again; it is left alone");
                    events.tell(about.clone(), Severity::Warning, "FieldConflict", "Apply", &note);
                }
            }
            Err(error) if error.is_conflict() || matches!(error, Error::NotLeader { .. }) => {}
            Err(error) => events.tell(
                about,
                Severity::Warning,
                error.reason(),
                "Reconcile",
                &error.to_string(),
            ),
        }
    }

    async fn finish(&mut self, plan: &Plan, report: Report, leaving: bool) -> Result<Outcome, Error> {
        if let (true, Cleanup::Proven, Some(finalizer)) = (leaving, plan.cleanup, O::FINALIZER) {
            self.remove_finalizer(finalizer).await?;
            return Ok(Outcome::Settled);
        }
        match report.leaving.into_iter().next() {
            Some(child) => Ok(Outcome::Waiting {
                on: Dependency::condition(format!("{child} to be gone")),
            }),
            None => Ok(plan.next.clone()),
        }
    }

    /// Writes the status that the plan wants; conditions say what went wrong.
    async fn write_status(&mut self, plan: &Plan, done: Result<&Report, &Error>) -> Result<(), Error> {
        let Some(status) = &plan.status else { return Ok(()) };
        let mut status = status.clone();
        let (generation, now) = (self.root.meta().generation, self.context.now());
        match done {
            Ok(report) => status::report_conceded(&mut status, &report.conceded, generation, now),
            Err(error) => {
                status::report_error(&mut status, error, generation, now);
                let before = serde_json::to_value(&*self.root).unwrap_or_default();
                status::keep_fields(&mut status, &before["status"], &plan.when_done);
            }
        }
        let (kind, key) = (status_kind::<O>(), Key::of(&*self.root));
        let wish = hash(&status::timeless(&status));
        let root = self.root.clone();
        let meta = root.meta();
        let memory = &self.planned.experience.memory;
        let known = memory.get(&kind, &key);
        let unchanged = |fact: Fact| {
            fact.wish == wish && Some(&fact.uid) == meta.uid.as_ref() && Some(&fact.version) == self.version.as_ref()
        };
        if known.is_some_and(unchanged) {
            return Ok(());
        }
        let before = serde_json::to_value(&*self.root).unwrap_or_default();
        let live = before.get("status").unwrap_or(&Value::Null);
        status::keep_transition_times(&mut status, live);
        if !status::same(&status, live) {
            self.must_not_loop(&kind, &key, wish)?;
            let body = self.body(json!({ "status": status }));
            let draft = Draft::new(Verb::Apply, Kind::of::<O::Root>(), key.clone(), body)
                .subresource("status")
                .before(before);
            let answer = self.context.writer.send(draft).await?;
            self.planned.experience.wars.wrote(&kind, &key, wish, Instant::now());
            self.advance(&answer);
        }
        if let (Some(uid), Some(version)) = (meta.uid.clone(), self.version.clone()) {
            let fact = Fact {
                uid,
                version,
                wish,
                owned: 0,
            };
            memory.keep(&kind, &key, fact);
        }
        Ok(())
    }

    /// The same status again and again: somebody else writes it too, or it never comes to rest.
    fn must_not_loop(&self, kind: &Kind, key: &Key, wish: u64) -> Result<(), Error> {
        let (wars, now) = (&self.planned.experience.wars, Instant::now());
        if !wars.is_loop(kind, key, wish, now) {
            return Ok(());
        }
        self.context.metrics.hot_loop(&self.context.controller);
        let error = Error::HotLoop {
            kind: Box::new(Kind::of::<O::Root>()),
            key: key.clone(),
        };
        let about = self.root.object_ref(&());
        let note = error.to_string();
        self.context
            .events()
            .tell(about, Severity::Warning, error.reason(), "WriteStatus", &note);
        Err(error)
    }

    async fn add_finalizer(&mut self, finalizer: &str) -> Result<(), Error> {
        let mut all = finalizers(&*self.root).to_vec();
        all.push(finalizer.to_owned());
        self.set_finalizers(all).await
    }

    async fn remove_finalizer(&mut self, finalizer: &str) -> Result<(), Error> {
        let mut all = finalizers(&*self.root).to_vec();
        all.retain(|name| name != finalizer);
        self.set_finalizers(all).await
    }

    async fn set_finalizers(&mut self, all: Vec<String>) -> Result<(), Error> {
        let mut body = self.body(json!({}));
        body["metadata"]["finalizers"] = json!(all);
        let mut draft = Draft::new(Verb::Patch, Kind::of::<O::Root>(), Key::of(&*self.root), body);
        draft.patch = Some("application/merge-patch+json");
        let answer = self.context.writer.send(draft).await?;
        self.advance(&answer);
        Ok(())
    }

    /// A body that applies to this root, in the version that was read, and to no other.
    fn body(&self, mut body: Value) -> Value {
        let (kind, meta) = (Kind::of::<O::Root>(), self.root.meta());
        body["apiVersion"] = json!(kind.api_version());
        body["kind"] = json!(kind.kind);
        body["metadata"] = json!({
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": self.version,
        });
        if let Some(namespace) = &meta.namespace {
            body["metadata"]["namespace"] = json!(namespace);
        }
        body
    }

    fn advance(&mut self, answer: &Value) {
        if let Some(version) = answer["metadata"]["resourceVersion"].as_str() {
            self.version = Some(version.to_owned());
        }
    }
}

fn finalizers<K: Resource>(object: &K) -> &[String] {
    object.meta().finalizers.as_deref().unwrap_or_default()
}

/// The name under which the memory keeps a root's status, apart from the root itself.
fn status_kind<O: Operator>() -> Kind {
    let mut kind = Kind::of::<O::Root>();
    kind.plural = format!("{}/status", kind.plural).into();
    kind
}
