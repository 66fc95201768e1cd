//go:build tools

// Package tools pins etcd, the store behind the real control plane and one of the stores that
// Stead's API server can stand on. `cargo xtask kubernetes` builds it from here.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
