//! The framework on a cluster, with faults between them.
//!
//! The operator under test keeps shelves: a PodDisruptionBudget stands for a shelf (it has a spec, a generation and
//! conditions in its status, and the server alone does nothing with it), `minAvailable` says how many books it
//! has, and each book is a ConfigMap.

mod applying;
mod faults;
mod leading;
mod shelf;
mod world;
