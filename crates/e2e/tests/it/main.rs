//! Stories on a running cluster: the `stead` binary as its users run it.

mod bad_input;
mod binary;
mod clients;
mod demo;
mod disk;
mod ecosystems;
mod explain;
mod extension;
mod helm;
mod images;
mod inside;
mod joined;
mod kubectl;
mod leaders;
mod monitoring;
mod ordinary;
mod ports;
mod privilege;
mod sessions;
mod storage;
mod survival;
mod terminal;
mod up;
mod webapp;
mod workloads;
