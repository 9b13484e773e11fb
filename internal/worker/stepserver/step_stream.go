package stepserver

import (
	"context"
	"sync"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// These are the timings of a running step (guarantees, section 2.11).
const (
	maxSilence = 2 * time.Second // longest time without a message on the stream
	leaseTTL   = 30 * time.Second
)

// stepStream serializes the messages on the stream of a step. It is safe for concurrent use.
type stepStream struct {
	mu       sync.Mutex
	stream   troupev1.AgentService_ExecuteStepServer
	lastSent time.Time
}

func (s *stepStream) send(item *troupev1.ExecuteStepResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSent = time.Now()
	return s.stream.Send(item)
}

// sendHeartbeat sends a heartbeat, unless a message was sent recently.
func (s *stepStream) sendHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.lastSent) < maxSilence/2 {
		return
	}
	s.lastSent = time.Now()
	_ = s.stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Heartbeat{Heartbeat: &troupev1.Heartbeat{}}})
}

// sendHeartbeats sends heartbeats until ctx ends.
func (s *stepStream) sendHeartbeats(ctx context.Context) {
	tick := time.NewTicker(maxSilence / 2)
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
