package stepserver

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// entriesTimeout bounds the wait for trace entries of earlier turns.
const entriesTimeout = 10 * time.Second

// entryRequests holds the requests for trace entries of earlier turns that wait for the orchestrator's answer. A worker has
// no connection to orchestrators. It asks on the stream of the step, and the orchestrator calls ProvideEntries. It is safe for
// concurrent use.
type entryRequests struct {
	mu      sync.Mutex
	waiting map[string]chan *troupev1.ProvideEntriesRequest
}

// ask returns at most limit of the latest trace entries of earlier turns (CO-68).
func (r *entryRequests) ask(ctx context.Context, out *stepStream, limit int) ([]event.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, entriesTimeout,
		failure.New(failure.SystemTimeout, "agent.EarlierEntries", "the orchestrator did not send the entries of earlier turns in time"))
	defer cancel()
	id, answers := rand.Text(), make(chan *troupev1.ProvideEntriesRequest, 1)
	r.mu.Lock()
	r.waiting[id] = answers
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, id)
	}()
	asked := &troupev1.EntriesRequest{Id: id, Limit: int32(limit)}
	if err := out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_EntriesRequest{EntriesRequest: asked}}); err != nil {
		return nil, err
	}
	select {
	case answer := <-answers:
		if err := grpcfailure.FromProto(answer.GetFailure()); err != nil {
			return nil, err
		}
		var entries []event.Event
		for _, e := range answer.GetEvents() {
			if entry, ok := wire.TraceEntryFromProto(e); ok {
				entries = append(entries, entry)
			}
		}
		return entries, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ProvideEntries implements troupev1.AgentServiceServer.
func (s *Server) ProvideEntries(_ context.Context, req *troupev1.ProvideEntriesRequest) (*troupev1.ProvideEntriesResponse, error) {
	r := &s.entries
	r.mu.Lock()
	answers := r.waiting[req.GetId()]
	delete(r.waiting, req.GetId())
	r.mu.Unlock()
	if answers == nil {
		return nil, failure.New(failure.NotFound, "agent.ProvideEntries", "id: no step waits for these entries any more")
	}
	answers <- req
	return &troupev1.ProvideEntriesResponse{}, nil
}
