// Package perkey stores one value of a plugin per key, such as a session or a turn, in the agent's own state (the AGENT
// tier). The number of keys is limited.
package perkey

import (
	"container/list"
	"sync"

	"github.com/troupe-dev/troupe/pkg/ownership"
)

// MaxNames is how many names are stored. A new name replaces the least recently used one.
const MaxNames = 10_000

// Values holds one value of a plugin for each name, such as a session or a turn, until the agent closes. It is safe for
// concurrent use.
type Values[T any] struct {
	key string
	mu  sync.Mutex
}

// New returns the Values that are stored under a key of the agent's own state. The key must begin with "_".
func New[T any](key string) *Values[T] { return &Values[T]{key: key} }

// Update calls change with the value of a name, which is initially the zero T. Calls are serialized, so change
// must not block.
func (v *Values[T]) Update(state *ownership.AgentState, name string, change func(*T)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.listIn(state)
	if kept == nil {
		kept = &recencyList[T]{elements: map[string]*list.Element{}}
		if err := state.Set(v.key, kept); err != nil {
			return err
		}
	}
	change(kept.touch(name))
	return nil
}

// Get returns the value of a name, and whether the name has a value.
func (v *Values[T]) Get(state *ownership.AgentState, name string) (value T, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.listIn(state)
	if kept == nil || kept.elements[name] == nil {
		return value, false
	}
	return *kept.touch(name), true
}

func (v *Values[T]) listIn(state *ownership.AgentState) *recencyList[T] {
	value, _ := state.Get(v.key)
	kept, _ := value.(*recencyList[T])
	return kept
}

// recencyList holds values in the order of their last use.
type recencyList[T any] struct {
	order    list.List // elements are *entry[T]; the most recently used comes first
	elements map[string]*list.Element
}

type entry[T any] struct {
	name  string
	value T
}

func (r *recencyList[T]) touch(name string) *T {
	e, ok := r.elements[name]
	if !ok {
		e = r.order.PushFront(&entry[T]{name: name})
		r.elements[name] = e
	}
	r.order.MoveToFront(e)
	if r.order.Len() > MaxNames {
		last := r.order.Back()
		delete(r.elements, last.Value.(*entry[T]).name)
		r.order.Remove(last)
	}
	return &e.Value.(*entry[T]).value
}
