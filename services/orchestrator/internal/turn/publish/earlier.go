package publish

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// maxEarlierTraces is how many traces of a session EarlierEntries reads at most. A turn has four entries or more.
const maxEarlierTraces = 300

// EarlierEntries returns the latest events of turns before the one of w that are entries of a trace, oldest first: at most
// limit, and at most memory.MaxWindowBytes together (CO-68). It reads the store, newest trace first, until it has enough.
func EarlierEntries(ctx context.Context, w *Writer, limit int) ([]*troupev1.Event, error) {
	ref, store := w.events.Ref(), w.traces.Store()
	traces, err := store.List(ctx, ref.Tenant, trace.Query{Session: w.turn.Request.Session, Limit: maxEarlierTraces})
	if err != nil {
		return nil, err
	}
	traces = slices.DeleteFunc(traces, func(t *troupev1.Trace) bool { return int(t.GetTurn()) >= w.turn.Turn.Number })
	slices.SortStableFunc(traces, func(a, b *troupev1.Trace) int { return int(b.GetTurn()) - int(a.GetTurn()) })
	var latest []*troupev1.Event // newest first
	bytes := 0
	for _, t := range traces {
		events, err := w.traces.StoredEvents(ctx, trace.Ref{Tenant: ref.Tenant, Trace: t.GetTraceId()}, t.GetLastSequence())
		if err != nil {
			return nil, err
		}
		for _, e := range slices.Backward(events) {
			e = entryEvent(e)
			if e == nil {
				continue
			}
			if bytes += proto.Size(e); len(latest) == limit || bytes > memory.MaxWindowBytes {
				slices.Reverse(latest)
				return latest, nil
			}
			latest = append(latest, e)
		}
	}
	slices.Reverse(latest)
	return latest, nil
}

// entryEvent returns what an entry needs of an event (nil if the event is no entry).
func entryEvent(e *troupev1.Event) *troupev1.Event {
	if _, ok := wire.TraceEntryFromProto(e); !ok {
		return nil
	}
	if u := e.GetArtifactUpdate(); u != nil {
		u.Data = nil
	}
	r := e.GetTurnResult()
	if r == nil {
		return e
	}
	e.Payload = &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{
		Outcome: r.GetOutcome(), Agent: r.GetAgent(), Usage: r.GetUsage(), Duration: r.GetDuration(), Failure: r.GetFailure(),
	}}
	return e
}
