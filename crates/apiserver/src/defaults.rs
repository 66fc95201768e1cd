//! The values that the server fills in for built-in kinds.
