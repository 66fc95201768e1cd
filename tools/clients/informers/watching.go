package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// tally counts what an informer told its handler.
type tally struct {
	sync.Mutex
	added, updated, deleted map[string]int
}

func newTally() *tally {
	return &tally{added: map[string]int{}, updated: map[string]int{}, deleted: map[string]int{}}
}

func (t *tally) count(in map[string]int, object any) {
	t.Lock()
	defer t.Unlock()
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		key = "nonsense: " + err.Error()
	}
	in[key]++
}

func (t *tally) total(in map[string]int) int {
	t.Lock()
	defer t.Unlock()
	sum := 0
	for _, times := range in {
		sum += times
	}
	return sum
}

func (t *tally) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { t.count(t.added, object) },
		UpdateFunc: func(_, object any) { t.count(t.updated, object) },
		DeleteFunc: func(object any) { t.count(t.deleted, object) },
	}
}

func sharedInformer(ctx context.Context, w *world) error {
	const objects = 20
	maps := w.typed.CoreV1().ConfigMaps(w.namespace)
	labels := map[string]string{"story": "shared"}
	factory := informers.NewSharedInformerFactoryWithOptions(w.typed, 0,
		informers.WithNamespace(w.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "story=shared" }))
	informer := factory.Core().V1().ConfigMaps()
	seen := newTally()
	if _, err := informer.Informer().AddEventHandler(seen.handler()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	for i := range objects {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("shared-%d", i), labels), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := until(ctx, "every create is seen", func() bool { return seen.total(seen.added) == objects }); err != nil {
		return err
	}
	for i := range objects {
		object, err := informer.Lister().ConfigMaps(w.namespace).Get(fmt.Sprintf("shared-%d", i))
		if err != nil {
			return err
		}
		changed := object.DeepCopy()
		changed.Data["step"] = "1"
		if _, err := maps.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if err := until(ctx, "every update is seen", func() bool { return seen.total(seen.updated) == objects }); err != nil {
		return err
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "story=shared"}); err != nil {
		return err
	}
	if err := until(ctx, "every delete is seen", func() bool { return seen.total(seen.deleted) == objects }); err != nil {
		return err
	}
	if left := len(informer.Informer().GetStore().ListKeys()); left != 0 {
		return fmt.Errorf("%d objects are left in the cache of an empty collection", left)
	}
	if added := seen.total(seen.added); added != objects {
		return fmt.Errorf("%d additions were told of %d objects", added, objects)
	}
	return nil
}

func selectedInformer(ctx context.Context, w *world) error {
	maps := w.typed.CoreV1().ConfigMaps(w.namespace)
	list := cache.NewFilteredListWatchFromClient(w.typed.CoreV1().RESTClient(), "configmaps", w.namespace,
		func(o *metav1.ListOptions) { o.LabelSelector = "door=open" })
	informer := cache.NewSharedInformer(list, &corev1.ConfigMap{}, 0)
	seen := newTally()
	if _, err := informer.AddEventHandler(seen.handler()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go informer.Run(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)

	object, err := maps.Create(ctx, configMap("door", map[string]string{"door": "shut"}), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	object.Labels["door"] = "open"
	if object, err = maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "it enters", func() bool { return seen.total(seen.added) == 1 }); err != nil {
		return err
	}
	object.Labels["door"] = "shut"
	if _, err = maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "it leaves", func() bool { return seen.total(seen.deleted) == 1 }); err != nil {
		return err
	}
	return maps.Delete(ctx, "door", metav1.DeleteOptions{})
}

func streamedList(ctx context.Context, w *world) error {
	maps := w.typed.CoreV1().ConfigMaps(w.namespace)
	for _, name := range []string{"streamed-a", "streamed-b"} {
		if _, err := maps.Create(ctx, configMap(name, map[string]string{"story": "streamed"}), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	yes := true
	watch, err := maps.Watch(ctx, metav1.ListOptions{
		LabelSelector:        "story=streamed",
		SendInitialEvents:    &yes,
		AllowWatchBookmarks:  true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return err
	}
	defer watch.Stop()
	initial := 0
	for event := range watch.ResultChan() {
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			return fmt.Errorf("a %T came by the watch", event.Object)
		}
		if object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			if initial != 2 || object.ResourceVersion == "" {
				return fmt.Errorf("the end of the list came after %d objects at %q", initial, object.ResourceVersion)
			}
			return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "story=streamed"})
		}
		initial++
	}
	return fmt.Errorf("the watch ended before its list did")
}

func metadataInformer(ctx context.Context, w *world) error {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	maps := w.typed.CoreV1().ConfigMaps(w.namespace)
	if _, err := maps.Create(ctx, configMap("thin", map[string]string{"story": "thin"}), metav1.CreateOptions{}); err != nil {
		return err
	}
	informer := metadatainformer.NewFilteredMetadataInformer(w.metadata, resource, w.namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = "story=thin" }).Informer()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go informer.Run(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	held, found, err := informer.GetStore().GetByKey(w.namespace + "/thin")
	if err != nil || !found {
		return fmt.Errorf("the object is not in the cache (%v)", err)
	}
	if partial, ok := held.(*metav1.PartialObjectMetadata); !ok || partial.UID == "" {
		return fmt.Errorf("the cache holds a %T", held)
	}
	return maps.Delete(ctx, "thin", metav1.DeleteOptions{})
}

func dynamicInformer(ctx context.Context, w *world) error {
	definitions := w.dynamic.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "wells.clients.stead.dev"},
		"spec": map[string]any{
			"group": "clients.stead.dev", "scope": "Namespaced",
			"names": map[string]any{"plural": "wells", "singular": "well", "kind": "Well"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"depth": map[string]any{
						"type": "integer", "default": int64(3), "minimum": int64(1)}},
				}},
			}},
		},
	}}
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	wells := schema.GroupVersionResource{Group: "clients.stead.dev", Version: "v1", Resource: "wells"}
	// Served from the request after the definition's create: no wait for `Established` is needed here.
	if err := until(ctx, "the custom resource is served", func() bool {
		_, err := w.dynamic.Resource(wells).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
		return err == nil
	}); err != nil {
		return err
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(w.dynamic, 0, w.namespace, nil)
	informer := factory.ForResource(wells)
	seen := newTally()
	if _, err := informer.Informer().AddEventHandler(seen.handler()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	well := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clients.stead.dev/v1", "kind": "Well", "metadata": map[string]any{"name": "old"}}}
	if _, err := w.dynamic.Resource(wells).Namespace(w.namespace).Create(ctx, well, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "the custom object is seen", func() bool { return seen.total(seen.added) == 1 }); err != nil {
		return err
	}
	held, err := informer.Lister().ByNamespace(w.namespace).Get("old")
	if err != nil {
		return err
	}
	depth, _, err := unstructured.NestedInt64(held.(*unstructured.Unstructured).Object, "depth")
	if err != nil || depth != 3 {
		return fmt.Errorf("the default depth is %d (%v)", depth, err)
	}
	if err := definitions.Delete(ctx, "wells.clients.stead.dev", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, "the custom object goes with its definition", func() bool { return seen.total(seen.deleted) == 1 })
}
