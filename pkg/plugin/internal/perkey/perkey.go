// Package perkey stores one value of a plugin per key, such as a session or a turn, in the agent's own state (the AGENT
// tier). The number of keys is limited.
package perkey

import (
	"container/list"
	"sync"

	"github.com/troupe-dev/troupe/pkg/ownership"
)

// MaxKeys is how many keys are stored. A new key replaces the least recently used one.
const MaxKeys = 10_000

// Values holds one value of a plugin for each key, such as a session or a turn, until the agent closes. It is safe for
// concurrent use.
type Values[T any] struct {
	stateKey string
	mu       sync.Mutex
}

// New returns the Values that are stored under stateKey in the agent's own state. It must begin with "_".
func New[T any](stateKey string) *Values[T] { return &Values[T]{stateKey: stateKey} }

// Update calls change with the value of a key, which is initially the zero T. Calls are serialized, so change
// must not block.
func (v *Values[T]) Update(state *ownership.AgentState, key string, change func(*T)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.listIn(state)
	if kept == nil {
		kept = &recencyList[T]{elements: map[string]*list.Element{}}
		if err := state.Set(v.stateKey, kept); err != nil {
			return err
		}
	}
	change(kept.touch(key))
	return nil
}

// Get returns the value of a key, and whether the key has a value.
func (v *Values[T]) Get(state *ownership.AgentState, key string) (value T, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.listIn(state)
	if kept == nil || kept.elements[key] == nil {
		return value, false
	}
	return *kept.touch(key), true
}

func (v *Values[T]) listIn(state *ownership.AgentState) *recencyList[T] {
	value, _ := state.Get(v.stateKey)
	kept, _ := value.(*recencyList[T])
	return kept
}

// recencyList holds values in the order of their last use.
type recencyList[T any] struct {
	order    list.List // elements are *entry[T]; the most recently used comes first
	elements map[string]*list.Element
}

type entry[T any] struct {
	key   string
	value T
}

func (r *recencyList[T]) touch(key string) *T {
	e, ok := r.elements[key]
	if !ok {
		e = r.order.PushFront(&entry[T]{key: key})
		r.elements[key] = e
	}
	r.order.MoveToFront(e)
	if r.order.Len() > MaxKeys {
		last := r.order.Back()
		delete(r.elements, last.Value.(*entry[T]).key)
		r.order.Remove(last)
	}
	return &e.Value.(*entry[T]).value
}
