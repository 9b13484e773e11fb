package trace

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryStore is an in-memory trace store with a configurable latency. Tests can make it unavailable.
type memoryStore struct {
	Eraser // none

	mu            sync.Mutex
	record        *troupev1.Trace
	turn          TurnInfo
	events        []*troupev1.Event
	epoch         int64
	writes        int
	heartbeats    []Heartbeat
	isUnavailable bool
	latency       time.Duration
}

func (s *memoryStore) write() error {
	time.Sleep(s.latency)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.isUnavailable {
		return failure.New(failure.SystemNetwork, "ram", "away")
	}
	return nil
}

func (s *memoryStore) setUnavailable(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isUnavailable = away
}

func (s *memoryStore) Claim(_ context.Context, c Claim) (int64, uint64, error) {
	if err := s.write(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.turn, s.epoch = c.Record, c.Turn, s.epoch+1
	s.events = append(s.events, c.Events...)
	return s.epoch, uint64(len(s.events)), nil
}

func (s *memoryStore) Append(ctx context.Context, _ Ref, epoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error {
	if err := s.write(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch {
		return failure.New(failure.Fenced, "ram", "fenced")
	}
	for _, e := range events {
		if e.GetSequence() == uint64(len(s.events)+1) {
			s.events = append(s.events, e)
		}
	}
	if turnEpoch != 0 {
		s.turn.TurnEpoch = turnEpoch
	}
	if result != nil {
		s.record.State = troupev1.TraceState_TRACE_STATE_ENDED
	}
	return nil
}

func (s *memoryStore) Get(context.Context, Ref) (*troupev1.Trace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return nil, failure.New(failure.NotFound, "ram", "not found")
	}
	record := proto.CloneOf(s.record)
	record.LastSequence = uint64(len(s.events))
	return record, nil
}

func (s *memoryStore) Events(_ context.Context, _ Ref, after uint64, limit int) ([]*troupev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events[after:min(int(after)+limit, len(s.events))]), nil
}

func (s *memoryStore) Load(ctx context.Context, ref Ref) (RunningTrace, error) {
	record, err := s.Get(ctx, ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	return RunningTrace{Record: record, Turn: s.turn, TimeLeft: s.turn.Timeout}, err
}

func (s *memoryStore) Heartbeat(_ context.Context, b Heartbeat) (HeartbeatReply, error) {
	if err := s.write(); err != nil {
		return HeartbeatReply{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeats = append(s.heartbeats, b)
	return HeartbeatReply{}, nil
}

func (s *memoryStore) ReleaseLease(context.Context, Ref) error { return nil }

func (s *memoryStore) RequestStop(context.Context, StopRequest) error { return nil }

func (s *memoryStore) AddFollowers(context.Context, Ref, int) (int, error) { return 0, nil }

func (s *memoryStore) Decisions(context.Context, string, DecisionQuery) ([]*troupev1.Decision, error) {
	return nil, nil
}

func (s *memoryStore) List(context.Context, string, Query) ([]*troupev1.Trace, error) {
	return nil, nil
}

var ref = Ref{"t", "0123456789abcdef0123456789abcdef"}

func openTrace(t *testing.T, store Store) (*Traces, *Log) {
	t.Helper()
	traces := New(store, zap.NewNop())
	l, err := traces.Open(t.Context(), newClaim(TurnInfo{}), false)
	require.NoError(t, err)
	return traces, l
}

func newClaim(terms TurnInfo) Claim {
	return Claim{Tenant: ref.Tenant, Record: &troupev1.Trace{TraceId: ref.Trace, SessionId: "s", Turn: 1}, Turn: terms}
}

func warningEvent() *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{}}}
}

func textDelta(text string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}}
}

func lastEvent() *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{}}}
}

// collectSequences reads a watch to its end and returns the sequences of the durable events.
func collectSequences(ctx context.Context, traces *Traces, after uint64) (sequences []uint64, err error) {
	for e, err := range traces.Watch(ctx, ref, after) {
		if err != nil {
			return sequences, err
		}
		if s := e.GetSequence(); s > 0 {
			sequences = append(sequences, s)
		}
	}
	return sequences, nil
}

func sequenceRange(first, last uint64) (all []uint64) {
	for s := first; s <= last; s++ {
		all = append(all, s)
	}
	return all
}

// Every watcher sees each event once and in order, from any sequence. Watchers that leave or fail do not affect
// the others.
// Req: OC-4, LP-35
func TestLog_WatchersSeeEveryEventOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{latency: time.Millisecond}
		traces, l := openTrace(t, store)
		var wg sync.WaitGroup
		const events = 120
		for n := range events {
			require.NoError(t, l.Append(t.Context(), warningEvent()))
			after := uint64(n / 2)
			wg.Go(func() {
				got, err := collectSequences(t.Context(), traces, after)
				if err != nil || !slices.Equal(got, sequenceRange(after+1, events+1)) {
					t.Errorf("watch after %d: %v, %v", after, got, err)
				}
			})
			wg.Go(func() {
				defer func() { _ = recover() }()
				for _, err := range traces.Watch(t.Context(), ref, after) {
					if err != nil || n%2 == 0 {
						panic("a watcher fails")
					}
					return
				}
			})
			time.Sleep(time.Duration(n%3) * time.Millisecond)
		}
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
		wg.Wait()
		require.Len(t, store.events, events+1)

		got, err := collectSequences(t.Context(), traces, 10) // from the store, now
		require.NoError(t, err)
		require.Equal(t, sequenceRange(11, events+1), got)
	})
}

func TestLog_ShowsNoEventBeforeItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{latency: time.Hour}
		traces, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), textDelta("early")))
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		require.NoError(t, l.Append(t.Context(), textDelta("late")))
		start := time.Now()
		var seen []string
		for e, err := range traces.Watch(t.Context(), ref, 0) {
			require.NoError(t, err)
			seen = append(seen, e.GetTextDelta().GetText())
			if len(seen) == 1 {
				require.Zero(t, time.Since(start), "a delta waits for nothing when all before it is stored")
			}
			if len(seen) == 3 {
				break
			}
		}
		require.Equal(t, []string{"early", "", "late"}, seen)
		require.Equal(t, time.Hour, time.Since(start))
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
	})
}

func TestLog_BatchesPendingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{latency: time.Millisecond}
		traces, l := openTrace(t, store)
		for range 100 {
			require.NoError(t, l.Append(t.Context(), warningEvent()))
		}
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
		require.LessOrEqual(t, store.writes, 3)
	})
}

func TestLog_SurvivesAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		traces, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		store.setUnavailable(true)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		go func() { time.Sleep(30 * time.Second); store.setUnavailable(false) }()
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
		require.Len(t, store.events, 3)
	})
}

func TestLog_IsFencedByAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		traces, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()

		other := New(store, zap.NewNop())
		taken, err := other.Open(t.Context(), newClaim(TurnInfo{}), true)
		require.NoError(t, err)
		require.False(t, taken.IsEmpty())

		require.NoError(t, l.Append(t.Context(), warningEvent()))
		<-l.Rejected()
		require.True(t, failure.Is(traces.Close(t.Context(), l, lastEvent()), failure.Fenced))
		require.NoError(t, other.Close(t.Context(), taken, lastEvent()))
		got, err := collectSequences(t.Context(), other, 0)
		require.NoError(t, err)
		require.Equal(t, sequenceRange(1, 2), got)
	})
}

func TestLog_WatchersOfAnAbandonedTraceGetTraceOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traces, l := openTrace(t, &memoryStore{})
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		watched := make(chan error)
		go func() { _, err := collectSequences(t.Context(), traces, 0); watched <- err }()
		synctest.Wait()
		traces.Abandon(t.Context(), l)
		require.True(t, failure.Is(<-watched, failure.TraceOrphaned))
		_, err := collectSequences(t.Context(), traces, 0) // from the store
		require.True(t, failure.Is(err, failure.TraceOrphaned))
	})
}

func TestTraces_WatchRejectsUnknownTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traces := New(&memoryStore{}, zap.NewNop())
		_, err := collectSequences(t.Context(), traces, 0)
		require.True(t, failure.Is(err, failure.NotFound))

		traces, l := openTrace(t, &memoryStore{})
		_, err = collectSequences(t.Context(), traces, 7)
		require.True(t, failure.Is(err, failure.UserInvalidInput))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = collectSequences(ctx, traces, 0)
		require.True(t, errors.Is(err, context.Canceled))
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
	})
}

func TestLog_LimitsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traces, l := openTrace(t, &memoryStore{})
		for range MaxEvents {
			require.NoError(t, l.Append(t.Context(), warningEvent()))
		}
		require.True(t, failure.Is(l.Append(t.Context(), warningEvent()), failure.ResourceQuota))
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()), "the end always fits")
	})
}

func TestTraces_CloseReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{isUnavailable: true}
		traces, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), warningEvent())) // this write retries without a deadline
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.Error(t, traces.Close(ctx, l, lastEvent()))
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
}

func TestTraces_UnfinishedTraceIsOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		traces, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		traces.Abandon(t.Context(), l) // simulates a killed owner

		orphaned, err := traces.IsOrphaned(t.Context(), ref)
		require.NoError(t, err)
		require.True(t, orphaned)
		again, err := traces.Open(t.Context(), newClaim(TurnInfo{}), true)
		require.NoError(t, err)
		require.NoError(t, traces.Close(t.Context(), again, lastEvent()))
		orphaned, err = traces.IsOrphaned(t.Context(), ref)
		require.NoError(t, err)
		require.False(t, orphaned, "it has ended")
	})
}

// IsOrphaned gives a slow owner time to store the last event. It does not report the trace as orphaned meanwhile.
func TestTraces_IsOrphanedWaitsForASlowOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		owner, l := openTrace(t, store)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		synctest.Wait()
		other := New(store, zap.NewNop())
		answer := make(chan bool, 1)
		go func() {
			orphaned, err := other.IsOrphaned(t.Context(), ref)
			answer <- orphaned || err != nil
		}()
		time.Sleep(ownerEndTimeout / 2)
		require.NoError(t, l.Append(t.Context(), warningEvent()))
		require.NoError(t, owner.Close(t.Context(), l, lastEvent()))
		require.False(t, <-answer)
		got, err := collectSequences(t.Context(), other, 0)
		require.NoError(t, err)
		require.Equal(t, sequenceRange(1, 3), got, "nothing of the owner is lost")
	})
}
