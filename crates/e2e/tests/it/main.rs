//! Stories on a running cluster: the `stead` binary as its users run it.

mod binary;
mod demo;
mod kubectl;
mod up;
mod webapp;
