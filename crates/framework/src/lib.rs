//! Build Kubernetes operators: manager, cache, work queue, controller, apply, leader election, webhooks.
//!
//! An operator says what shall be, and the framework makes it so, again and again:
//!
//! ```no_run
//! use jiff::Timestamp;
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use stead::{Context, Controller, Error, Manager, Operator, Plan};
//! use std::sync::Arc;
//!
//! /// Puts a welcome note into every namespace.
//! struct Greeter;
//!
//! impl Operator for Greeter {
//!     type Root = Namespace;
//!     type Seen = ();
//!
//!     // 1. Observe: read from the cache, or from outside, what planning needs.
//!     async fn observe(&self, _: &Context, _: &Arc<Namespace>) -> Result<(), Error> {
//!         Ok(())
//!     }
//!
//!     // 2. Plan: pure. Say which children shall exist, and the status.
//!     fn plan(&self, root: &Namespace, _: &(), _: Timestamp) -> Plan {
//!         let mut note = ConfigMap::default();
//!         note.metadata.name = Some("welcome".to_owned());
//!         note.metadata.namespace = root.metadata.name.clone();
//!         note.data = Some([("text".to_owned(), "Welcome!".to_owned())].into());
//!         Plan::new().child(note)
//!     }
//!     // 3. Apply: the framework does it.
//! }
//!
//! # async fn example(client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
//! let manager = Manager::builder(client).name("greeter").build();
//! manager.add(Controller::operator("greeter", Greeter).owns::<ConfigMap>());
//! manager.run(shutdown).await
//! # }
//! ```
//!
//! # The parts
//!
//! - [`Manager`] starts and stops everything, in the order of [`Phase`], and owns the shared [`Cache`].
//! - [`Cache`] keeps objects: [`Cache::store`] gives a [`Store`] of a kind, with [`Store::get`], [`Store::list`],
//!   [`Store::in_namespace`], [`Store::owned_by`] and indexes over any function ([`Store::index`],
//!   [`Store::by_index`]). Readers get `Arc<K>` and never copy. [`Cache::watch`] selects and transforms;
//!   `cache.store::<PartialObjectMeta<Pod>>()` keeps metadata only; a type of your own with fewer fields
//!   is a projection. [`Cache::watch_dynamic`] takes kinds that are known at run time.
//! - [`Controller`] turns events into keys: [`Controller::for_`] the root kind, [`Controller::owns`] children,
//!   [`Controller::watches`] anything else; [`Source`] adds selectors and predicates. [`queue::Queue`] decides who
//!   is next; [`queue::Wake`] is why.
//! - [`Operator`] is the usual form (observe, plan, apply); [`Reconciler`] the plain one, with [`Context::writer`] for
//!   creates, updates, patches, applies and deletes that carry what was read. Every write made through
//!   [`Writer`] is waited for before the key runs again: no reconcile sees a cache older than its own writes.
//! - [`Plan`] is a value: children, deletions, actions, events, status, and when to look again. It prints.
//! - [`Outcome`] says what happens next after success; [`Error::class`] after failure.
//!
//! # A controller that writes in its own way
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use stead::{Context, Error, Key, Outcome, Propagation, Reconciler, Store};
//!
//! /// Deletes pods that have ended.
//! struct Sweeper {
//!     pods: Store<Pod>,
//! }
//!
//! impl Reconciler for Sweeper {
//!     async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
//!         let Some(pod) = self.pods.get(key) else { return Ok(Outcome::Settled) };
//!         let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
//!         if phase == Some("Succeeded") {
//!             // Refused if the pod was changed or replaced since we read it.
//!             context.writer().delete(&*pod, Propagation::Background).await?;
//!         }
//!         Ok(Outcome::Settled)
//!     }
//! }
//!
//! # fn example(manager: &stead::Manager) {
//! let sweeper = Sweeper { pods: manager.cache().store::<Pod>() };
//! manager.add(stead::Controller::new("sweeper", sweeper).for_::<Pod>().concurrency(2));
//! # }
//! ```

#![warn(missing_docs)]

pub mod apply;
pub mod cache;
pub mod changes;
pub mod client;
pub mod clock;
pub mod configuration;
pub mod controller;
mod decode;
pub mod error;
pub mod events;
pub mod gate;
pub mod history;
pub mod key;
pub mod kind;
pub mod leader;
pub mod manager;
pub mod metrics;
pub mod names;
pub mod outcome;
pub mod plan;
pub mod queue;
pub mod rbac;
pub mod reconciler;
mod server;
pub mod status;
#[cfg(feature = "otel")]
pub mod telemetry;
pub mod webhook;
pub mod writer;

pub use cache::{Cache, CacheSettings, Change, Index, Namespaces, Revision, Store, Watch};
pub use clock::Clock;
pub use controller::{Controller, ControllerHandle, Source, Trigger, predicates};
pub use decode::decode;
pub use error::{Class, Error};
pub use key::{Key, KeyRef};
pub use kind::{Kind, Metadata, Object, Scope, Typed};
pub use leader::LeaderElection;
pub use manager::{Manager, ManagerBuilder, ManagerOptions, Phase};
pub use outcome::{Dependency, Outcome};
pub use plan::{Action, Child, Cleanup, Deletion, Ownership, Plan, Prune, Replace, Severity};
pub use rbac::Rule;
pub use reconciler::{Context, Operator, Reconciler};
pub use writer::{Answer, Draft, Mode, Propagation, Verb, Writer};
