// Informers of client-go on a server's redisclusters, while writers change them: no event may be lost, and what an
// informer holds in the end must be what a list gives.
//
// Whether informers begin with a watch-list is client-go's own switch, KUBE_FEATURE_WatchListClient; its detector of
// differences between the two is switched on by KUBE_WATCHLIST_INCONSISTENCY_DETECTOR, and ends the program.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "informers"
	// Objects, the writers that share them, and the changes each object sees.
	objects = 40
	writers = 8
	changes = 25
	// Every third object is deleted half-way and made again.
	remade = 3
	// The label that counts the changes of an object.
	counter = "change"
)

// Longest time until informers hold what a list gives, stretched as tests/hung stretches its limits.
func patience() time.Duration {
	stretch, err := strconv.Atoi(os.Getenv("KUN_STRETCH"))
	if err != nil || stretch < 1 {
		stretch = 1
	}
	return time.Duration(stretch) * 20 * time.Second
}

var (
	clusters   = schema.GroupVersionResource{Group: "redis.kun.io", Version: "v1", Resource: "redisclusters"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the server")
	watchList := flag.Bool("watch-list", false, "informers must begin with a watch-list; otherwise they must not")
	flag.Parse()
	if err := run(*kubeconfig, *watchList); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, watchList bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	seen := &requests{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counting{next, seen} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := makeNamespace(ctx, client); err != nil {
		return err
	}
	early, err := follow(ctx, client)
	if err != nil {
		return err
	}
	half := make(chan struct{})
	written, wait := writeAll(ctx, client, half)
	<-half
	late, err := follow(ctx, client)
	if err != nil {
		return err
	}
	if err := wait(); err != nil {
		return err
	}
	for name, follower := range map[string]*follower{"early": early, "late": late} {
		if err := follower.equalsList(ctx, client); err != nil {
			return fmt.Errorf("the %s informer: %w", name, err)
		}
		if err := follower.missedNothing(name == "early"); err != nil {
			return fmt.Errorf("the %s informer: %w", name, err)
		}
	}
	if began := seen.watchLists.Load() > 0; began != watchList {
		return fmt.Errorf("informers that begin with a watch-list: %v, expected %v", began, watchList)
	}
	fmt.Printf("informers (watch-list %v): %d writes, %d and %d events, none lost, both hold what a list gives\n",
		watchList, written.Load(), early.count(), late.count())
	return nil
}

func makeNamespace(ctx context.Context, client dynamic.Interface) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}
	_, err := client.Resource(namespaces).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// requests counts the watches that ask for the present state first.
type requests struct{ watchLists atomic.Int64 }

type counting struct {
	next http.RoundTripper
	seen *requests
}

func (c *counting) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("sendInitialEvents") == "true" {
		c.seen.watchLists.Add(1)
	}
	return c.next.RoundTrip(request)
}

// follower is an informer and everything it was told.
type follower struct {
	store  cache.Store
	mutex  sync.Mutex
	events int
	// By uid: the changes an object was seen with, in order; after its deletion, a last one below zero.
	changes map[types.UID][]int
}

const deleted = -1

func follow(ctx context.Context, client dynamic.Interface) (*follower, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, clusters, namespace, 0, cache.Indexers{}, nil).Informer()
	f := &follower{store: informer.GetStore(), changes: map[types.UID][]int{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.saw(object, false) },
		UpdateFunc: func(_, object any) { f.saw(object, false) },
		DeleteFunc: func(object any) { f.saw(object, true) },
	})
	if err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("an informer does not sync")
	}
	return f, nil
}

func (f *follower) saw(object any, gone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	cluster := object.(*unstructured.Unstructured)
	change := deleted
	if !gone {
		change = changeOf(cluster)
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.events++
	f.changes[cluster.GetUID()] = append(f.changes[cluster.GetUID()], change)
}

func (f *follower) count() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.events
}

func changeOf(cluster *unstructured.Unstructured) int {
	change, err := strconv.Atoi(cluster.GetLabels()[counter])
	if err != nil {
		return -2
	}
	return change
}

// missedNothing checks that the changes of every object follow each other, from the first one on for who was there.
func (f *follower) missedNothing(fromTheStart bool) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for uid, changes := range f.changes {
		if fromTheStart && changes[0] != 0 {
			return fmt.Errorf("object %s begins with change %d", uid, changes[0])
		}
		for at := 1; at < len(changes); at++ {
			if last := at == len(changes)-1 && changes[at] == deleted; !last && changes[at] != changes[at-1]+1 {
				return fmt.Errorf("object %s went from change %d to %d", uid, changes[at-1], changes[at])
			}
		}
	}
	return nil
}

// equalsList waits until the informer holds exactly what a list gives.
func (f *follower) equalsList(ctx context.Context, client dynamic.Interface) error {
	list, err := client.Resource(clusters).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != objects {
		return fmt.Errorf("the list has %d objects, expected %d", len(list.Items), objects)
	}
	wanted := map[string]string{}
	for _, item := range list.Items {
		wanted[item.GetName()] = text(item.Object)
	}
	var difference error
	for end := time.Now().Add(patience()); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if difference = f.differs(wanted); difference == nil {
			return nil
		}
	}
	return difference
}

func (f *follower) differs(wanted map[string]string) error {
	held := f.store.List()
	if len(held) != len(wanted) {
		return fmt.Errorf("it holds %d objects, a list gives %d", len(held), len(wanted))
	}
	for _, object := range held {
		cluster := object.(*unstructured.Unstructured)
		if have := text(cluster.Object); have != wanted[cluster.GetName()] {
			return fmt.Errorf("it holds\n%s\na list gives\n%s", have, wanted[cluster.GetName()])
		}
	}
	return nil
}

func text(object any) string {
	encoded, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

// writeAll starts the writers. Half of their work done, half is closed.
func writeAll(ctx context.Context, client dynamic.Interface, half chan struct{}) (*atomic.Int64, func() error) {
	written := &atomic.Int64{}
	var once sync.Once
	failures := make(chan error, writers)
	var running sync.WaitGroup
	wrote := func() {
		if written.Add(1) >= objects*changes/2 {
			once.Do(func() { close(half) })
		}
	}
	for writer := 0; writer < writers; writer++ {
		running.Add(1)
		go func() {
			defer running.Done()
			for number := writer; number < objects; number += writers {
				if err := writeOne(ctx, client, number, wrote); err != nil {
					failures <- err
					once.Do(func() { close(half) })
					return
				}
			}
		}()
	}
	wait := func() error {
		running.Wait()
		close(failures)
		return <-failures
	}
	return written, wait
}

func writeOne(ctx context.Context, client dynamic.Interface, number int, wrote func()) error {
	resource := client.Resource(clusters).Namespace(namespace)
	name := fmt.Sprintf("cluster-%d", number)
	lives := 1
	if number%remade == 0 {
		lives = 2
	}
	for life := 0; life < lives; life++ {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster",
			"metadata": map[string]any{"name": name, "labels": map[string]any{counter: "0"}},
			"spec":     map[string]any{},
		}}
		if _, err := resource.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		wrote()
		for change := 1; change <= changes; change++ {
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, counter, change)
			if _, err := resource.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return err
			}
			wrote()
		}
		if life < lives-1 {
			if err := resource.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			wrote()
		}
	}
	return nil
}
