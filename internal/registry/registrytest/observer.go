package registrytest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
)

// waitTimeout bounds every wait for an update. It is far longer than an update should take.
const waitTimeout = 30 * time.Second

// Observer receives the updates of a watch. Its methods fail the test if the expected update does not come. Only
// the goroutine of the test may call them.
type Observer struct {
	// Known holds the instances that result from all updates so far.
	Known map[registry.Key]registry.Instance

	t            *testing.T
	updates      chan registry.Update
	incarnations map[registry.Key]int64 // the highest incarnation of each instance
}

// Observe starts a watch and returns its Observer. The watch ends with the test.
func Observe(t *testing.T, w registry.Watcher) *Observer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o := &Observer{
		t: t, Known: map[registry.Key]registry.Instance{},
		updates: make(chan registry.Update), incarnations: map[registry.Key]int64{},
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.Watch(ctx, func(u registry.Update) {
			select {
			case o.updates <- u:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return o
}

// Next returns the next update.
func (o *Observer) Next() registry.Update {
	o.t.Helper()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case u := <-o.updates:
		o.applyUpdate(u)
		return u
	case <-timer.C:
		require.FailNow(o.t, "no update of the watch", "known: %v", o.Known)
		return registry.Update{}
	}
}

// Until reads updates until the condition holds.
func (o *Observer) Until(satisfied func() bool) {
	o.t.Helper()
	for !satisfied() {
		o.Next()
	}
}

// NextList returns the instances of the next update, and fails the test if that is not a list.
func (o *Observer) NextList() []registry.Instance {
	o.t.Helper()
	u := o.Next()
	require.NotNil(o.t, u.List, "want a list, got %+v", u)
	return *u.List
}

// NextPut returns the instance of the next update, and fails the test if that is not a put.
func (o *Observer) NextPut() registry.Instance {
	o.t.Helper()
	u := o.Next()
	require.NotNil(o.t, u.Put, "want a put, got %+v", u)
	return *u.Put
}

// NextDelete returns the key of the next update, and fails the test if that is not a delete.
func (o *Observer) NextDelete() registry.Key {
	o.t.Helper()
	u := o.Next()
	require.NotNil(o.t, u.Delete, "want a delete, got %+v", u)
	return *u.Delete
}

// applyUpdate applies an update to Known and checks what must hold for every update.
func (o *Observer) applyUpdate(u registry.Update) {
	o.t.Helper()
	set := 0
	if u.List != nil {
		set++
		clear(o.Known)
		for _, in := range *u.List {
			o.applyInstance(in)
		}
	}
	if u.Put != nil {
		set++
		o.applyInstance(*u.Put)
	}
	if u.Delete != nil {
		set++
		require.Contains(o.t, o.Known, *u.Delete, "an unknown instance was deleted")
		delete(o.Known, *u.Delete)
	}
	if u.Unreachable != nil {
		set++
	}
	require.Equal(o.t, 1, set, "an update has exactly one field set: %+v", u)
}

func (o *Observer) applyInstance(in registry.Instance) {
	o.t.Helper()
	require.GreaterOrEqual(o.t, in.Incarnation, o.incarnations[in.Key()], "an older incarnation of %v came back", in.Key())
	o.incarnations[in.Key()] = in.Incarnation
	o.Known[in.Key()] = in
}
