package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
)

func pages(ctx context.Context, w *world) error {
	const objects = 25
	maps := w.typed.CoreV1().ConfigMaps(w.namespace)
	for i := range objects {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("page-%d", i), map[string]string{"story": "pages"}), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	asked := 0
	collector := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		asked++
		return maps.List(ctx, options)
	})
	collector.PageSize = 10
	names := map[string]int{}
	err := collector.EachListItem(ctx, metav1.ListOptions{LabelSelector: "story=pages"}, func(object runtime.Object) error {
		names[object.(metav1.Object).GetName()]++
		return nil
	})
	if err != nil {
		return err
	}
	if len(names) != objects || asked != 3 {
		return fmt.Errorf("%d names came in %d pages", len(names), asked)
	}
	return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "story=pages"})
}

func typedApply(ctx context.Context, w *world) error {
	maps := w.typed.CoreV1().ConfigMaps(w.namespace)
	apply := func(manager, value string) error {
		wanted := corev1apply.ConfigMap("applied", w.namespace).WithData(map[string]string{"owner": value})
		_, err := maps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	if err := apply("first", "first"); err != nil {
		return err
	}
	if err := apply("second", "second"); !errors.IsConflict(err) {
		return fmt.Errorf("a second manager's apply of another value gave %v, not a conflict", err)
	}
	held, err := maps.Get(ctx, "applied", metav1.GetOptions{})
	if err != nil {
		return err
	}
	mine, err := corev1apply.ExtractConfigMap(held, "first")
	if err != nil || mine.Data["owner"] != "first" {
		return fmt.Errorf("what the first manager owns was read as %v (%v)", mine, err)
	}
	return maps.Delete(ctx, "applied", metav1.DeleteOptions{})
}

func leaderElection(ctx context.Context, w *world) error {
	var ever atomic.Int32
	candidate := func(name string) (*leaderelection.LeaderElector, error) {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "candidates", Namespace: w.namespace},
			Client:     w.typed.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 2 * time.Second, RenewDeadline: time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { ever.Add(1) },
				OnStoppedLeading: func() {},
			},
		})
	}
	first, err := candidate("first")
	if err != nil {
		return err
	}
	second, err := candidate("second")
	if err != nil {
		return err
	}
	firstCtx, stopFirst := context.WithCancel(ctx)
	defer stopFirst()
	secondCtx, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	go first.Run(firstCtx)
	if err := until(ctx, "the first leads", func() bool { return ever.Load() == 1 }); err != nil {
		return err
	}
	go second.Run(secondCtx)
	if err := until(ctx, "the second sees the first", func() bool { return second.GetLeader() == "first" }); err != nil {
		return err
	}
	stopFirst()
	return until(ctx, "the second leads once the first has let go", func() bool { return ever.Load() == 2 && second.IsLeader() })
}
