//! The WebApp operator.
