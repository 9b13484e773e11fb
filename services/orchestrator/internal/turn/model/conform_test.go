package model

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	traces "github.com/troupe-dev/troupe/services/orchestrator/internal/trace/inmem"
)

// replyOf returns the reply that an error of a store stands for.
func replyOf(err error) reply {
	for mode, r := range map[failure.Mode]reply{failure.Fenced: fenced, failure.NotFound: notFound, failure.TurnNotOpen: notOpen} {
		if failure.Is(err, mode) {
			return r
		}
	}
	if err != nil {
		return gap
	}
	return ok
}

// realTurn is a turn in the store in RAM.
type realTurn struct {
	store *inmem.Store
	now   time.Time
}

var ref = session.Ref{Session: "s"}

func newRealTurn() *realTurn {
	r := &realTurn{now: time.Unix(1, 0)}
	r.store = inmem.New(inmem.Config{Clock: func() time.Time { return r.now }})
	return r
}

func (r *realTurn) lease(epoch int8) memory.Lease {
	return memory.Lease{Ref: ref, TurnID: "t", Epoch: int64(epoch)}
}

// operation is a call of the store of turns, of the model and of the real one.
type operation struct {
	name  string
	model func(turn) (turn, reply)
	real  func(context.Context, *realTurn) (reply, int8) // the reply, and the granted epoch (0 means none)
}

// operations returns all calls with epochs up to 3.
func operations() (all []operation) {
	for _, by := range []int8{1, 2} {
		for lost := range int8(3) {
			all = append(all, operation{
				fmt.Sprintf("begin by %d, lost %d", by, lost),
				func(t turn) (turn, reply) { return code.begin(t, by, lost) },
				func(ctx context.Context, r *realTurn) (reply, int8) {
					begun, err := r.store.BeginTurn(ctx, memory.Begin{
						Ref: ref, TurnID: "t", TraceID: fmt.Sprint(by), Fingerprint: "f", Message: conversation.User("hi"), LeaseTTL: time.Minute,
						Window: 1, LostEpoch: int64(lost),
					})
					if err != nil {
						return replyOf(err), 0
					}
					return map[memory.BeginStatus]reply{memory.StatusBegun: ok, memory.StatusOpen: open, memory.StatusClosed: closed}[begun.Status], int8(begun.Turn.Epoch)
				},
			})
		}
	}
	for _, epoch := range []int8{1, 2} {
		all = append(all, operation{
			fmt.Sprintf("release under %d", epoch), func(t turn) (turn, reply) { return code.release(t, epoch) },
			func(ctx context.Context, r *realTurn) (reply, int8) {
				return replyOf(r.store.ReleaseTurn(ctx, r.lease(epoch))), 0
			},
		}, operation{
			fmt.Sprintf("record under %d", epoch), func(t turn) (turn, reply) { return code.record(t, epoch, intent) },
			func(ctx context.Context, r *realTurn) (reply, int8) {
				return replyOf(r.store.Record(ctx, r.lease(epoch), 1, []execution.Entry{{Number: 1, Phase: execution.Intent, Tool: "t", Effect: execution.AtMostOnce}})), 0
			},
		}, operation{
			fmt.Sprintf("commit under %d", epoch), func(t turn) (turn, reply) { return code.commit(t, epoch) },
			func(ctx context.Context, r *realTurn) (reply, int8) {
				_, err := r.store.CommitStep(ctx, memory.Commit{
					Ref: ref, TurnID: "t", Epoch: int64(epoch), Base: 1, Messages: []conversation.Message{conversation.Assistant("a", "so")},
					Result: execution.Result{Step: 1, Agent: "a", Text: "so"}, Outcome: session.OutcomeCompleted,
				})
				return replyOf(err), 0
			},
		})
	}
	return append(all, operation{
		"the lease expires", func(t turn) (turn, reply) { t.Leased = false; return t, ok },
		func(_ context.Context, r *realTurn) (reply, int8) { r.now = r.now.Add(time.Hour); return ok, 0 },
	})
}

// The store of the model gives the same replies and epochs as the store in RAM, for all sequences of calls.
func TestModel_TurnsConformToTheStore(t *testing.T) {
	const length = 4
	ops := operations()
	var walk func(path []int)
	checked := 0
	walk = func(path []int) {
		if len(path) == length {
			checked++
			r, m, names := newRealTurn(), turn{}, ""
			for _, n := range path {
				var want reply
				m, want = ops[n].model(m)
				got, epoch := ops[n].real(t.Context(), r)
				names += ops[n].name + "; "
				if got != want || epoch > 0 && want == ok && epoch != m.Epoch {
					require.Failf(t, "another reply", "%swant %d and epoch %d, got %d and epoch %d", names, want, m.Epoch, got, epoch)
				}
			}
			return
		}
		for n := range ops {
			walk(append(path, n))
		}
	}
	walk(nil)
	t.Logf("%d sequences of %d calls", checked, length)
}

// The store of traces of the model gives the same replies as the one in RAM, for all sequences of calls.
func TestModel_TracesConformToTheStore(t *testing.T) {
	const length = 5
	event := func(n int8) []*troupev1.Event { return []*troupev1.Event{{Sequence: uint64(n)}} }
	type owner struct {
		epoch int64
		owns  bool
	}
	var walk func(path []int8)
	walk = func(path []int8) {
		if len(path) < length {
			for n := range int8(8) {
				walk(append(path, n))
			}
			return
		}
		store, m, owners := traces.New(nil), trail{}, [2]owner{}
		for _, n := range path {
			by, turnEpoch := n%2, 1+n/2%2
			var want reply
			var err error
			if n < 4 {
				m, want = code.claim(m, by+1, turnEpoch)
				var epoch int64
				epoch, _, err = store.Claim(t.Context(), trace.Claim{
					Tenant: "d", Record: &troupev1.Trace{TraceId: "t", SessionId: "s"}, Turn: trace.TurnInfo{User: "u", TurnEpoch: int64(turnEpoch)}, Events: event(1),
				})
				if want == ok {
					owners = [2]owner{}
					owners[by] = owner{epoch, true}
				}
			} else {
				m, want = code.append(m, owners[by].owns, turnEpoch, m.Last)
				if want == ok && m.Ended {
					m.TurnEpoch = turnEpoch
				}
				err = store.Append(t.Context(), trace.Ref{Tenant: "d", Trace: "t"}, max(owners[by].epoch, -1), int64(turnEpoch), event(m.Last), &troupev1.TurnResult{})
			}
			require.Equal(t, want, replyOf(err), "%v: %v", path, err)
		}
	}
	walk(nil)
}
