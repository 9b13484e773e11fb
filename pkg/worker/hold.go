package worker

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// Times of a running step (guarantees 2.11).
const (
	heartbeatEvery = 2 * time.Second  // at least so often the stream carries something
	renewEvery     = 10 * time.Second // the lease of the turn
	turnLease      = 30 * time.Second
)

// sender serializes what goes out on the stream of a step. Safe for concurrent use.
type sender struct {
	mu     sync.Mutex
	stream troupev1.AgentService_ExecuteStepServer
	sent   time.Time
}

func (s *sender) send(item *troupev1.ExecuteStepResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = time.Now()
	return s.stream.Send(item)
}

// beat sends a heartbeat unless something was sent lately.
func (s *sender) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.sent) < heartbeatEvery/2 {
		return
	}
	s.sent = time.Now()
	_ = s.stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Heartbeat{Heartbeat: &troupev1.Heartbeat{}}})
}

// heartbeats sends them until ctx ends.
func (s *sender) heartbeats(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.beat()
		case <-ctx.Done():
			return
		}
	}
}

// renew keeps the lease of a turn until ctx ends, and ends the step when the turn is no
// longer this worker's: somebody else has it, or for a whole lease nobody could be asked
// (guarantees F2, F3). By the fact lost_lease of the latter the orchestrator knows that the
// step did not fail: it takes the turn back and has the step done again.
func renew(ctx context.Context, turns memory.Turns, hold memory.Hold, end context.CancelCauseFunc) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, renewEvery)
		err := turns.RenewTurn(call, hold, turnLease)
		cancel()
		switch {
		case err == nil:
			last = asked
		case failure.Is(err, failure.Fenced, failure.TurnNotOpen, failure.NotFound, failure.SessionDeleted):
			end(err)
			return
		case time.Since(last) > turnLease:
			end(failure.New(failure.SystemNetwork, "agent.ExecuteStep",
				"the memory service could not be reached for the lease of the turn; the step is given up").
				With("lost_lease", "true").Because(err))
			return
		}
	}
}
