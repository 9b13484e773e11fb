// Package history records calls of clients with their start and end times. It then checks with porcupine
// whether some order of these operations explains all answers.
//
// A history is partitioned by session or key, and each partition is checked on its own. An operation without
// an answer may have taken effect at any time after its call. If the final log shows whether it did, it is
// recorded with that result; otherwise it is left out.
package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// Never is the return time of an operation without an answer.
const Never = int64(math.MaxInt64)

// checkTimeout bounds the search for an order of one partition.
const checkTimeout = 30 * time.Second

// input is the request of an operation. It decides to which partition of the history the operation belongs.
type input interface{ partition() string }

// Log is the history of one model while it is recorded. It is safe for concurrent use.
type Log struct {
	clock *Clock
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// Clock provides the times of a history. All logs of a run share one clock. It is safe for concurrent use.
type Clock struct {
	start time.Time
	last  atomic.Int64
}

// NewClock returns a clock that starts at zero now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now returns the time since the clock started, in nanoseconds. Each call returns a later time than the one
// before, so that successive operations never look simultaneous.
func (c *Clock) Now() int64 {
	for {
		last := c.last.Load()
		now := max(last+1, time.Since(c.start).Nanoseconds())
		if c.last.CompareAndSwap(last, now) {
			return now
		}
	}
}

// NewLog returns an empty history.
func NewLog(clock *Clock) *Log { return &Log{clock: clock} }

// Now returns the current time as the start time of an operation.
func (l *Log) Now() int64 { return l.clock.Now() }

// Add records an operation that started at the given time and ends now.
func (l *Log) Add(call int64, in input, out any) { l.AddUntil(call, l.Now(), in, out) }

// AddUntil records an operation with its start and end times.
func (l *Log) AddUntil(call, answered int64, in input, out any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, porcupine.Operation{Input: in, Call: call, Output: out, Return: answered})
}

// check searches an order that explains the operations of each partition.
func (l *Log) check(name string, model porcupine.Model) (found []violation.Violation) {
	l.mu.Lock()
	parts := map[string][]porcupine.Operation{}
	for _, op := range l.ops {
		key := op.Input.(input).partition()
		parts[key] = append(parts[key], op)
	}
	l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		switch porcupine.CheckOperationsTimeout(model, parts[key], checkTimeout) {
		case porcupine.Ok:
		case porcupine.Illegal:
			found = append(found, violation.Newf(name, "%s: no order explains these %d operations:%s", key, len(parts[key]), describeViolation(model,
				parts[key])))
		default:
			found = append(found, violation.Newf(name, "%s: undecided after %s", key, checkTimeout))
		}
	}
	return found
}

// The number of operations that a violation shows: the last ones that an order explains, and the first ones that
// it does not.
const (
	maxExplainedOps   = 6
	maxUnexplainedOps = 8
)

// describeViolation shows where the longest order that was found ends.
func describeViolation(model porcupine.Model, ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, ops, checkTimeout)
	var longest []int
	for _, part := range info.PartialLinearizations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var rest []int
	for id := range ops {
		if !slices.Contains(longest, id) {
			rest = append(rest, id)
		}
	}
	slices.SortFunc(rest, func(a, b int) int { return cmp.Compare(ops[a].Call, ops[b].Call) })
	var text strings.Builder
	show := func(title string, ids []int) {
		fmt.Fprintf(&text, "\n %s:", title)
		for _, id := range ids {
			until := "no answer"
			if ops[id].Return != Never {
				until = time.Duration(ops[id].Return).Round(time.Microsecond).String()
			}
			fmt.Fprintf(&text, "\n  %s … %s  %T%+v → %+v", time.Duration(ops[id].Call).Round(time.Microsecond), until, ops[id].Input, ops[id].Input,
				ops[id].Output)
		}
	}
	show("explained up to", longest[max(0, len(longest)-maxExplainedOps):])
	show("and not", rest[:min(len(rest), maxUnexplainedOps)])
	return text.String()
}
