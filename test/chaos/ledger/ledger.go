// Package ledger records the calls of the chaos worker's model and tools. Each of them posts to a server in
// the test process before it returns. A call in the ledger has happened even if the worker died afterwards, so
// tests compare the ledger with the events of the mesh.
//
// The ledger can hold a call open, so that a fault hits a worker during the call.
package ledger

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Kind is the kind of a call: a model call, or a call of a tool with a certain effect class.
type Kind string

// The kinds of calls. The tools are named after their kind.
const (
	Model      Kind = "model"
	Read       Kind = "read"
	Idempotent Kind = "idempotent"
	AtMostOnce Kind = "at_most_once"
)

// Tools lists the tools in the order in which a step of the chaos worker calls them.
var Tools = []Kind{Read, Idempotent, AtMostOnce}

// Call is one call as the ledger received it.
type Call struct {
	Kind   Kind      `json:"kind"`
	Mark   string    `json:"mark"`          // name of the request: its session id and request id
	Step   int       `json:"step"`          // number of the step in the turn, from 1
	Number int       `json:"number"`        // number of the model call in the step, from 1 (0 for tools)
	Key    string    `json:"key,omitempty"` // the idempotency key of a tool call
	Worker string    `json:"worker"`        // id of the instance
	At     time.Time `json:"-"`
}

// Reply is the ledger's reply to a caller.
type Reply struct {
	// Receipt names the ledger entry: "<kind>#<n>". Repeated calls of an idempotent tool with the same key get the
	// receipt of the first call.
	Receipt string `json:"receipt"`
}

// Book is a ledger without a server. The zero value is empty. It is safe for concurrent use.
type Book struct {
	mu    sync.Mutex
	calls []Call
	keys  map[string]string // receipts of idempotent calls
	holds []*HeldCall
}

// Ledger is a running ledger server. It is safe for concurrent use.
type Ledger struct {
	Book
	server   *http.Server
	listener net.Listener
	done     chan struct{}
}

// New starts a ledger on a free loopback port. The caller closes it.
func New() (*Ledger, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Ledger{listener: listener, done: make(chan struct{})}
	l.server = &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}
	go func() { defer close(l.done); _ = l.server.Serve(listener) }()
	return l, nil
}

// URL returns the address to which callers post their calls.
func (l *Ledger) URL() string { return "http://" + l.listener.Addr().String() }

// Close releases all held calls and stops the server.
func (l *Ledger) Close() error {
	l.mu.Lock()
	for _, h := range l.holds {
		h.Release()
	}
	l.mu.Unlock()
	err := l.server.Close()
	<-l.done
	return err
}

// Calls returns all calls so far, in the order of their arrival.
func (l *Book) Calls() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// ServeHTTP records a call and replies. If the test holds the call, it replies only after the release.
func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call Call
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	receipt, hold := l.record(call)
	if hold != nil {
		select {
		case <-hold.released:
		case <-r.Context().Done():
			return
		}
	}
	_ = json.NewEncoder(w).Encode(Reply{Receipt: receipt})
}

// Record records a call and returns its receipt.
func (l *Book) Record(call Call) (receipt string) {
	receipt, _ = l.record(call)
	return receipt
}

// record records a call and returns its receipt. It also returns the hold that matches the call (nil if there is
// none), after telling it of the call.
func (l *Book) record(call Call) (receipt string, hold *HeldCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	call.At = time.Now()
	l.calls = append(l.calls, call)
	receipt = fmt.Sprintf("%s#%d", call.Kind, len(l.calls))
	if call.Kind == Idempotent {
		if l.keys == nil {
			l.keys = map[string]string{}
		}
		if first, ok := l.keys[call.Key]; ok {
			receipt = first
		}
		l.keys[call.Key] = receipt
	}
	i := slices.IndexFunc(l.holds, func(h *HeldCall) bool { return h.wants(call) })
	if i < 0 {
		return receipt, nil
	}
	hold = l.holds[i]
	l.holds = slices.Delete(l.holds, i, i+1)
	hold.reached <- call
	return receipt, hold
}

// HeldCall is a call that the test holds open.
type HeldCall struct {
	wants    func(Call) bool
	reached  chan Call
	released chan struct{}
	release  func()
}

// Hold holds the next matching call until it is released.
func (l *Book) Hold(wanted func(Call) bool) *HeldCall {
	h := &HeldCall{wants: wanted, reached: make(chan Call, 1), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return h
}

// Reached returns a channel that delivers the call once it is held.
func (h *HeldCall) Reached() <-chan Call { return h.reached }

// Release lets the call continue, or lets it pass if it has not arrived yet. It may be called again.
func (h *HeldCall) Release() { h.release() }
