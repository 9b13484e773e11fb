package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// BenchmarkOverload first measures the capacity of the mesh with one caller per permit. It then offers five times
// that rate, without waiting for an answer before the next request. It reports the rate of finished turns, its
// ratio to the capacity, and the latency of rejections. The callers share the machine.
func BenchmarkOverload(b *testing.B) {
	const clients, during = 64, 3 * time.Second
	m := rig.StartInProcess(b, rig.Config{})
	for range b.N {
		peak := measureCapacity(b, m, clients, during)
		good, rejections, failed := offerLoad(b, m, 5*peak, during)
		if failed > 0 {
			b.Errorf("%d turns that were admitted failed", failed)
		}
		slices.Sort(rejections)
		b.ReportMetric(peak, "peak-turns/s")
		b.ReportMetric(good, "turns/s")
		b.ReportMetric(100*good/peak, "%-of-peak")
		b.ReportMetric(float64(len(rejections))/during.Seconds(), "rejections/s")
		if n := len(rejections); n > 0 {
			b.ReportMetric(float64(rejections[n/2].Microseconds())/1000, "rejection-p50-ms")
			b.ReportMetric(float64(rejections[n*99/100].Microseconds())/1000, "rejection-p99-ms")
		}
	}
}

// measureCapacity returns the turns per second that the given number of clients completes. Each client runs one
// turn at a time.
func measureCapacity(b *testing.B, m *rig.Mesh, clients int, during time.Duration) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	for began := time.Now(); clients > 0; clients-- {
		wg.Go(func() {
			for time.Since(began) < during {
				if err := sendOnce(b.Context(), m); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / during.Seconds()
}

// offerLoad sends requests at a fixed rate. It returns how many succeed per second, how long each rejection took,
// and how many requests failed otherwise.
func offerLoad(b *testing.B, m *rig.Mesh, rate float64, during time.Duration) (good float64, rejections []time.Duration, failed int) {
	b.Helper()
	var mu sync.Mutex
	done := 0
	var wg sync.WaitGroup
	began := time.Now()
	for n := 0; time.Since(began) < during; n++ {
		<-time.After(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		wg.Go(func() {
			asked := time.Now()
			err := sendOnce(b.Context(), m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && time.Since(began) <= during:
				done++
			case failure.Is(err, failure.Overloaded):
				rejections = append(rejections, time.Since(asked))
			case err != nil:
				b.Log(err)
				failed++
			}
		})
	}
	wg.Wait()
	return float64(done) / during.Seconds(), rejections, failed
}

// sendOnce runs one turn to its end and returns its failure. It does not retry if the request is rejected.
func sendOnce(ctx context.Context, m *rig.Mesh) error {
	s, err := m.Orchestrate(ctx, &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: "Tell me about it"},
		Target: "clarification", SessionId: uuid.NewString(), RequestId: uuid.NewString(),
	})
	for err == nil {
		var r *troupev1.OrchestrateResponse
		if r, err = s.Recv(); r.GetEvent().GetTurnResult().GetFailure() != nil {
			return grpcfailure.FromProto(r.GetEvent().GetTurnResult().GetFailure())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return grpcfailure.FromStatus("bench", err)
}
