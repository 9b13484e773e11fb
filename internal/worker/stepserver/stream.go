package stepserver

import (
	"context"
	"sync"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// These are the timings of a running step (guarantees 2.11).
const (
	heartbeatEvery = 2 * time.Second // longest time without a message on the stream
	turnLease      = 30 * time.Second
)

// stepStream serializes the messages on the stream of a step. It is safe for concurrent use.
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

// sendHeartbeat sends a heartbeat, unless a message was sent recently.
func (s *sender) sendHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.sent) < heartbeatEvery/2 {
		return
	}
	s.sent = time.Now()
	_ = s.stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Heartbeat{Heartbeat: &troupev1.Heartbeat{}}})
}

// sendHeartbeats sends heartbeats until ctx ends.
func (s *sender) heartbeats(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sendHeartbeat()
		case <-ctx.Done():
			return
		}
	}
}
