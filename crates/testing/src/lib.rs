//! An embedded cluster, or a real control plane, in anyone's tests.
//!
//! [`Cluster`] is an API server in the same process, with Kubernetes' controllers if they are wanted: it starts in
//! milliseconds, needs no binary and no port, and its clock is the test's. [`Faults`](faults::Faults) stands
//! between an operator and any API server and loses, delays, doubles or refuses what is sent. [`wait::until`] waits
//! for something to become true, and says what was missing when it did not.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use std::time::Duration;
//! use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Store};
//! use stead_test::faults::{Fault, Faults};
//! use stead_test::{Cluster, wait};
//!
//! /// The operator under test: signs every note.
//! struct Signer {
//!     notes: Store<ConfigMap>,
//! }
//!
//! impl Reconciler for Signer {
//!     async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
//!         if let Some(note) = self.notes.get(key).filter(|note| note.data.is_none()) {
//!             let signed = serde_json::json!({"data": {"signed": "yes"}});
//!             context.writer().patch(&*note, signed).await?;
//!         }
//!         Ok(Outcome::Settled)
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let cluster = Cluster::start().await.unwrap();
//! let faults = Faults::default();
//! // The first write reaches the server, and its answer is lost.
//! faults.next(1, Fault::LoseAnswer, |sent| sent.is_write());
//!
//! let manager = Manager::builder(faults.wrap(cluster.client())).clock(cluster.clock()).build();
//! let signer = Signer { notes: manager.cache().store::<ConfigMap>() };
//! manager.add(Controller::new("signer", signer).for_::<ConfigMap>());
//! let operator = tokio::spawn(manager.run(std::future::pending()));
//!
//! let notes: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
//! let mut note = ConfigMap::default();
//! note.metadata.name = Some("note".to_owned());
//! notes.create(&Default::default(), &note).await.unwrap();
//! wait::until("the note is signed", Duration::from_secs(20), || async {
//!     let note = notes.get("note").await.map_err(|error| error.to_string())?;
//!     note.data.map(drop).ok_or("not yet".to_owned())
//! })
//! .await
//! .unwrap();
//! operator.abort();
//! # });
//! ```
//!
//! # Virtual time
//!
//! With `#[tokio::test(start_paused = true)]` (tokio's feature `test-util`) time passes only while everybody sleeps:
//! a Lease expires and a backoff of five minutes ends at once, and a slow machine changes nothing. Everything in the
//! cluster and in the framework waits with tokio's clock.
//!
//! # The real thing
//!
//! [`kubernetes::Kubernetes`] runs the real kube-apiserver, controller manager and scheduler on loopback,
//! where `cargo xtask kubernetes` has built them: the judge of what the embedded cluster should do.

#![warn(missing_docs)]

pub mod children;
pub mod clock;
pub mod cluster;
// The chore that compares two API servers; nothing for anybody's tests.
#[doc(hidden)]
pub mod differential;
pub mod embedded;
pub mod faults;
pub mod hollow_cluster;
pub mod kubernetes;
pub mod skip;
pub mod tools;
pub mod wait;

pub use clock::VirtualClock;
pub use cluster::Cluster;
