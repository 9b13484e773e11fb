// Package probe serves the plain HTTP port of every process: /livez, /readyz, /startupz and /metrics.
//
// Liveness depends on the process alone, so an unavailable dependency never gets a process killed. Readiness is
// a board of named conditions, all of which must hold.
package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/process"
)

// Board holds the named conditions that must hold for a process to be ready. It is safe for concurrent use.
type Board struct {
	mu         sync.Mutex
	conditions map[string]error
	wasReady   bool // whether the board was ever ready
	watchers   []func(ready bool)
}

var errNotYet = errors.New("not yet")

// NewBoard returns a board with the given conditions. None of them holds yet.
func NewBoard(conditions ...string) *Board {
	b := &Board{conditions: map[string]error{}}
	for _, c := range conditions {
		b.conditions[c] = errNotYet
	}
	return b
}

// Set records that a condition holds (nil), or why it does not hold. Every client of the port sees the text of the
// error, so it must hold no secret. Set reports whether the condition changed between holding and not holding.
func (b *Board) Set(condition string, err error) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, known := b.conditions[condition]
	b.conditions[condition] = err
	ready := b.unmetError() == nil
	b.wasReady = b.wasReady || ready
	for _, w := range b.watchers {
		w(ready)
	}
	return !known || (was == nil) != (err == nil)
}

// OnChange calls watch with the current readiness, and again after each Set, in order. watch must not use the
// board.
func (b *Board) OnChange(watch func(ready bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers = append(b.watchers, watch)
	watch(b.unmetError() == nil)
}

// Ready returns nil, or an error that names each condition that does not hold.
func (b *Board) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unmetError()
}

func (b *Board) unmetError() error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(b.conditions)) {
		if err := b.conditions[name]; err != nil {
			all = append(all, fmt.Sprintf("%s: %v", name, err))
		}
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}

func (b *Board) checkStarted() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wasReady {
		return nil
	}
	return b.unmetError()
}

// Handler serves the probes and the metrics. A probe replies 200 "ok", or 503 with one line for each condition
// that does not hold.
func (b *Board) Handler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", checkHandler(func() error { return nil }))
	mux.HandleFunc("GET /readyz", checkHandler(b.Ready))
	mux.HandleFunc("GET /startupz", checkHandler(b.checkStarted))
	mux.Handle("GET /metrics", metrics)
	return mux
}

func checkHandler(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// shutdownTimeout is how long the server may take to finish requests when it stops.
const shutdownTimeout = time.Second

// ServerPart returns a part that serves the handler on the listener.
func ServerPart(lis net.Listener, handler http.Handler) process.Part {
	return process.Part{Name: "http " + lis.Addr().String(), Grace: 2 * shutdownTimeout, Run: func(ctx context.Context, ready func()) error {
		srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(lis) }()
		ready()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		err := errors.Join(srv.Shutdown(ctx), srv.Close())
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}}
}
