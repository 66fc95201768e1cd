//! Kubernetes' protobuf encoding of built-in kinds, to JSON and back.
