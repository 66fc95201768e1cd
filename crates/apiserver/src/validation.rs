//! What the server refuses of built-in kinds.
