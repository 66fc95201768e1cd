//! Stories on a running cluster: the `stead` binary as its users run it.

mod binary;
mod clients;
mod demo;
mod extension;
mod kubectl;
mod up;
mod webapp;
