// Package bench measures turns through a whole mesh: real gRPC on loopback, a real etcd,
// and a real Redis that syncs every write. Run it with `make bench`.
package bench

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// BenchmarkOrchestrate runs turns to their result, each in its own session. The one-step workload calls the
// clarification agent: one model call, no tool. The three-step workload runs the whole research assistant:
// four model calls and one search. The model answers instantly, so the benchmark measures the mesh.
func BenchmarkOrchestrate(b *testing.B) {
	m := rig.StartInProcess(b, rig.Config{})
	for _, turn := range []struct{ name, target, text string }{
		{"one-step", "clarification", "Tell me about it"},
		{"three-step", "research-assistant", "What may an agent write?"},
	} {
		for _, clients := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/clients=%d", turn.name, clients), func(b *testing.B) {
				measureTurns(b, clients, func() error { return ask(b, m, turn.target, turn.text) })
			})
		}
	}
}

func ask(b *testing.B, m *rig.Mesh, target, text string) error {
	req := &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: text},
		Target: target, SessionId: uuid.NewString(), RequestId: uuid.NewString(),
	}
	for e, err := range m.Turn(b.Context(), req) {
		if err != nil {
			return err
		}
		if f := e.GetTurnResult().GetFailure(); f != nil {
			return fmt.Errorf("turn failed: %s", f.GetMessage())
		}
	}
	return nil
}

// measureTurns distributes b.N turns over the clients and reports turns per second and latencies.
func measureTurns(b *testing.B, clients int, turn func() error) {
	b.Helper()
	latencies := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				began := time.Now()
				if err := turn(); err != nil {
					b.Error(err)
					return
				}
				latencies[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "turns/s")
	slices.Sort(latencies)
	b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "p99-ms")
}
