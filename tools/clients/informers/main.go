// Command informers is an ordinary client-go program, as thousands run: typed clients that speak protobuf,
// shared informers, a dynamic informer on a custom resource, metadata only, pages and leader election.
//
// The tests of Stead run it against the embedded API server. It prints one line for each thing that held, and
// ends with an error at the first that did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds every wait: a server that never answers fails the run instead of hanging it.
const patience = 30 * time.Second

// world is what each story gets: the clients, and a namespace of its own.
type world struct {
	config    *rest.Config
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	namespace string
}

type story struct {
	name string
	tell func(context.Context, *world) error
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig of the API server under test")
	namespace := flag.String("namespace", "default", "a namespace that exists and is empty")
	flag.Parse()
	if *kubeconfig == "" {
		return errors.New("--kubeconfig is missing")
	}
	world, err := connect(*kubeconfig, *namespace)
	if err != nil {
		return err
	}
	stories := []story{
		{"a shared informer sees objects come, change and go", sharedInformer},
		{"an informer with a selector sees an object enter and leave", selectedInformer},
		{"an informer starts with a streamed list when asked to", streamedList},
		{"a metadata informer holds no data", metadataInformer},
		{"a dynamic informer follows a custom resource", dynamicInformer},
		{"a pager collects every page once", pages},
		{"a typed apply owns its fields", typedApply},
		{"one of two candidates leads, and the other follows", leaderElection},
	}
	for _, story := range stories {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := story.tell(ctx, world)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", story.name, err)
		}
		fmt.Println("ok:", story.name)
	}
	return nil
}

func connect(kubeconfig, namespace string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 1000
	config.UserAgent = "stead-test-informers"

	// Kubernetes' own components ask for protobuf first and take JSON as well.
	wire := rest.CopyConfig(config)
	wire.ContentType = "application/vnd.kubernetes.protobuf"
	wire.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(wire)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &world{config, typed, dynamicClient, metadataClient, namespace}, nil
}

// until asks again until it holds, or says what it was waiting for.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{Data: map[string]string{"step": "0"}}
	object.Name, object.Labels = name, labels
	return object
}
