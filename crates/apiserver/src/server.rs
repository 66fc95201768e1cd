//! The API server as a value, and behind TLS.
