//! What each verb does to a resource.
//!
//! One generic path serves built-in and custom kinds alike; what a kind does differently is in `kinds`.

pub mod admit;
pub mod apply;
pub mod call;
pub mod collection;
pub mod create;
pub mod delete;
pub mod edit;
pub mod encode;
pub mod get;
pub mod list;
pub mod list_options;
pub mod managed;
pub mod metadata;
pub mod object;
pub mod patch;
pub mod selection;
pub mod update;
pub mod watch;
pub mod write_options;

pub use call::Call;
