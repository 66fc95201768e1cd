//! Stead's custom resources: types, defaults, validation.
