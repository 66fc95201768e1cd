//go:build tools

// Package tools pins programs that check what Stead makes: Helm drives the embedded cluster, promtool reads
// the alert rules. `cargo xtask kubernetes helm promtool` builds them from here.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/promtool"
	_ "helm.sh/helm/v4/cmd/helm"
)
