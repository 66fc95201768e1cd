//! The audit log: who did what, one JSON event a line.
