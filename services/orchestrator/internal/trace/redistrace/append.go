package redistrace

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/append.lua
var appendSource string

var appendScript = redis.NewScript(appendSource)

// maxDecisions is how many decisions of each type the decision index of a tenant keeps.
const maxDecisions = 10_000

// Append implements trace.Store.
func (w *writer) Append(ctx context.Context, ref trace.Ref, ownerEpoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error {
	const op = "trace.Append"
	if len(events) == 0 {
		return nil
	}
	var ending []byte
	if result != nil {
		var err error
		if ending, err = proto.Marshal(result); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	retention := w.conn.retention
	if len(result.GetPending()) > 0 || trace.IsQuarantined(result) {
		retention = max(retention, pendingTTL)
	}
	args, err := appendEvents([]any{ownerEpoch, ending, retention.Milliseconds(), turnEpoch}, events)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	reply, err := w.appendWithPointers(ctx, ref, events, result, args)
	if err != nil {
		return w.conn.Failure(op, err)
	}
	switch reply[0] {
	case "OK":
		return nil
	case "FENCED":
		return failure.New(failure.Fenced, op, "another orchestrator drives the trace now").With("owner_epoch", reply[1])
	case "NOT_FOUND":
		return notFoundError(op, ref)
	case "ERASED":
		return traceErasedError(op, ref)
	default:
		return fmt.Errorf("%s: the store answers %q to events from %d", op, reply, events[0].GetSequence())
	}
}

// appendWithPointers runs append.lua, and writes the pointers to decisions in the same round trip. It fails when
// either fails. Repeating the call writes the missing part.
func (w *writer) appendWithPointers(ctx context.Context, ref trace.Ref, events []*troupev1.Event, result *troupev1.TurnResult, args []any) ([]string, error) {
	pointers, quarantined := decisionPointers(ref, events), trace.IsQuarantined(result)
	if len(pointers) == 0 && !quarantined {
		return appendScript.Run(ctx, w.conn, traceKeys(ref), args...).StringSlice()
	}
	send := func(run evalFunc) ([]string, error) {
		var reply *redis.Cmd
		_, err := w.conn.Pipelined(ctx, func(p redis.Pipeliner) error {
			reply = run(ctx, p, traceKeys(ref), args...)
			w.addPointers(ctx, p, pointers)
			if quarantined {
				w.addExpiring(ctx, p, quarantineKey(ref.Tenant), ref.Trace, events[len(events)-1].GetTime().AsTime())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return reply.StringSlice()
	}
	reply, err := send(appendScript.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(appendScript.Eval)
	}
	return reply, err
}

// decisionPointers returns the pointers to the decisions among the events, by key. Writing a pointer twice changes
// nothing.
func decisionPointers(ref trace.Ref, events []*troupev1.Event) map[string][]redis.Z {
	var all map[string][]redis.Z
	for _, e := range events {
		d := tracelog.DecisionFromEvent(e)
		if d == nil {
			continue
		}
		if all == nil {
			all = map[string][]redis.Z{}
		}
		key := auditKey(ref.Tenant, d.GetType())
		pointer := fmt.Sprintf("%s/%d", ref.Trace, e.GetSequence())
		all[key] = append(all[key], redis.Z{Score: float64(d.GetTime().AsTime().UnixMilli()), Member: pointer})
	}
	return all
}

// addPointers writes pointers to decisions. The set expires together with the last trace that it may contain.
func (w *writer) addPointers(ctx context.Context, p redis.Pipeliner, pointers map[string][]redis.Z) {
	for _, key := range slices.Sorted(maps.Keys(pointers)) {
		p.ZAdd(ctx, key, pointers[key]...)
		p.ZRemRangeByRank(ctx, key, 0, -maxDecisions-1)
		p.PExpire(ctx, key, w.conn.longestRetention())
	}
}
