// Command webhooks is an admission webhook server as kubebuilder's users write it, on controller-runtime.
//
// The tests of Stead let the embedded API server call it over TLS: what Go's most used framework serves, the API
// server must be able to ask. It defaults and validates ConfigMaps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	port := flag.Int("port", 0, "the loopback port to serve on")
	certificates := flag.String("certificates", "", "the directory with tls.crt and tls.key")
	flag.Parse()
	if *port == 0 || *certificates == "" {
		return errors.New("--port and --certificates are needed")
	}
	log.SetLogger(zap.New())
	cluster, err := config.GetConfig()
	if err != nil {
		return err
	}
	manager, err := manager.New(cluster, manager.Options{
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates}),
		Metrics:       server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	// The manager starts the server only if it was asked for it.
	hooks := manager.GetWebhookServer()
	hooks.Register("/default", admission.WithDefaulter(manager.GetScheme(), defaulter{}))
	hooks.Register("/validate", admission.WithValidator(manager.GetScheme(), validator{}))
	return manager.Start(signals.SetupSignalHandler())
}

// defaulter gives every configuration an owner.
type defaulter struct{}

func (defaulter) Default(_ context.Context, object *corev1.ConfigMap) error {
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	if object.Data["owner"] == "" {
		object.Data["owner"] = "nobody"
	}
	return nil
}

// validator keeps colours within taste, and warns of one that is barely within.
type validator struct{}

func (validator) ValidateCreate(_ context.Context, object *corev1.ConfigMap) (admission.Warnings, error) {
	switch colour := object.Data["colour"]; {
	case colour == "puce":
		return nil, errors.New("puce is no colour for a configuration")
	case strings.HasPrefix(colour, "dark"):
		return admission.Warnings{"dark colours are hard to read"}, nil
	default:
		return nil, nil
	}
}

func (v validator) ValidateUpdate(ctx context.Context, old, object *corev1.ConfigMap) (admission.Warnings, error) {
	if old.Data["owner"] != object.Data["owner"] {
		return nil, errors.New("the owner stays who it was")
	}
	return v.ValidateCreate(ctx, object)
}

func (validator) ValidateDelete(context.Context, *corev1.ConfigMap) (admission.Warnings, error) {
	return nil, nil
}
