//! An embedded cluster, or a real control plane, in anyone's tests.
//!
//! [`kubernetes::Kubernetes`] runs the real kube-apiserver, controller manager and scheduler on loopback,
//! where `cargo xtask kubernetes` has built them: the judge of what the embedded cluster should do.

pub mod children;
pub mod differential;
pub mod embedded;
pub mod faults;
pub mod kubernetes;
pub mod skip;
pub mod tools;
pub mod wait;
