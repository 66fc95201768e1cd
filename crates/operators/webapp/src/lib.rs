//! The WebApp operator: a web application run in its administrator's stead.
//!
//! It observes ([`observe`]), plans ([`plan`], pure) and lets the framework apply. The flow of one look: the
//! revision that the spec asks for, the Deployment and Service that run it, what reaches and guards them, and a
//! status that says how far it all is; again in 30 seconds at the latest.

pub mod address;
pub mod advice;
pub mod deadline;
pub mod foreign;
pub mod gauges;
pub mod names;
pub mod observe;
pub mod plan;
pub mod recovery;
pub mod references;
pub mod replicas;
pub mod requests;
pub mod resources;
pub mod rollout;
pub mod seen;
pub mod situation;
pub mod status;
pub mod trouble;
pub mod usage;
pub mod webhooks;

pub use observe::WebAppOperator;
