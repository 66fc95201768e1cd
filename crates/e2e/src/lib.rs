//! Stories on a running cluster.
