package redistrace_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
	"github.com/troupe-dev/troupe/test/redistest"
)

const (
	agentChoice    = troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
	instanceChoice = troupev1.DecisionType_DECISION_TYPE_WORKER_SELECTION
)

// decisionEvent returns an event with a decision about an agent or an instance.
func decisionEvent(n int, sequence uint64, about troupev1.DecisionType) *troupev1.Event {
	e := &troupev1.Event{
		Sequence: sequence, TraceId: traceRef(n).Trace, SessionId: "s", Time: timestamppb.New(time.Unix(int64(n), int64(sequence)*int64(time.Millisecond))),
		Stage: troupev1.Stage_STAGE_ROUTE,
		Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{
			Type: agentChoice, Target: "research", Reason: "it always follows", Alternatives: []string{"b"}, Confidence: 0.8,
		}},
	}
	if about == instanceChoice {
		e.Stage, e.InstanceId = troupev1.Stage_STAGE_EXECUTE, "r-1"
		e.Payload = &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{Choice: &troupev1.InstanceChoice{Type: instanceChoice, Reason: "it is next"}}}
	}
	return e
}

// openStoreAt opens a store at a URL.
func openStoreAt(t *testing.T, url string) *redistrace.Store {
	t.Helper()
	s, err := redistrace.New(redisconn.Config{URL: url}, time.Hour)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func decisionIDs(t *testing.T, s trace.Store, q trace.DecisionQuery) (all []string) {
	t.Helper()
	found, err := s.Decisions(t.Context(), "default", q)
	require.NoError(t, err)
	for _, d := range found {
		all = append(all, fmt.Sprint(d.GetRecordId()[31:]))
	}
	return all
}

// Decisions are found by trace and by type, on every kind of Redis. In a Redis Cluster, traces and decision
// pointers are in different slots.
// Req: OC-32
func TestStore_FindsDecisions(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return "redis://" + redistest.Start(t) },
		"cluster":   func(t *testing.T) string { return redistest.StartCluster(t) },
		"miniredis": func(t *testing.T) string { return "redis://" + miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			url := addr(t)
			s, another := openStoreAt(t, url), openStoreAt(t, url)
			for n := 1; n <= 2; n++ {
				epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(n), Events: []*troupev1.Event{
					{Sequence: 1},
					decisionEvent(n, 2, agentChoice),
				}})
				require.NoError(t, err)
				rest := []*troupev1.Event{decisionEvent(n, 3, instanceChoice), {Sequence: 4}, decisionEvent(n, 5, agentChoice)}
				for range 2 { // a caller that got no reply repeats the call
					require.NoError(t, s.Append(t.Context(), traceRef(n), epoch, 0, rest, nil))
				}
				err = s.Append(t.Context(), traceRef(n), epoch-1, 0, []*troupev1.Event{decisionEvent(n, 6, agentChoice), decisionEvent(n, 3, agentChoice)}, nil)
				require.True(t, failure.Is(err, failure.Fenced), "%v", err)
			}
			require.Equal(t, []string{"2-5", "2-3", "2-2", "1-5", "1-3", "1-2"}, decisionIDs(t, s, trace.DecisionQuery{Limit: 9}),
				"what a fenced owner says did not happen")
			require.Equal(t, []string{"2-5", "2-3"}, decisionIDs(t, s, trace.DecisionQuery{Limit: 2}))
			require.Equal(t, []string{"2-3", "1-3"}, decisionIDs(t, s, trace.DecisionQuery{Limit: 9, Type: instanceChoice}))
			require.Equal(t, []string{"1-5", "1-3", "1-2"}, decisionIDs(t, s, trace.DecisionQuery{Limit: 9, Trace: traceRef(1).Trace}))
			require.Equal(t, []string{"1-5"}, decisionIDs(t, s, trace.DecisionQuery{Limit: 1, Trace: traceRef(1).Trace, Type: agentChoice}))
			require.Empty(t, decisionIDs(t, s, trace.DecisionQuery{Limit: 9, Trace: traceRef(7).Trace}))
			other, err := s.Decisions(t.Context(), "other", trace.DecisionQuery{Limit: 9})
			require.NoError(t, err)
			require.Empty(t, other)

			all, err := another.Decisions(t.Context(), "default", trace.DecisionQuery{Limit: 1})
			require.NoError(t, err, "another process")
			d := all[0]
			require.Equal(t, traceRef(2).Trace+"-5", d.GetRecordId())
			require.Equal(t, traceRef(2).Trace, d.GetTraceId())
			require.Equal(t, decisionEvent(2, 5, agentChoice).GetTime().AsTime(), d.GetTime().AsTime())
			require.Equal(t, agentChoice, d.GetType())
			require.Equal(t, troupev1.Stage_STAGE_ROUTE, d.GetStage())
			require.Equal(t, "research", d.GetTarget())
			require.Equal(t, "it always follows", d.GetReason())
			require.Equal(t, []string{"b"}, d.GetAlternatives())
			require.InDelta(t, 0.8, d.GetConfidence(), 0)
			require.Equal(t, "s", d.GetMetadata()["session_id"])
		})
	}
}

// A query finds the decisions even if Redis is killed right after it acknowledged their events.
// Req: OC-32
func TestStore_DecisionsAndEventsSurviveAKill(t *testing.T) {
	server := redistest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, server.Addr)
	_, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(1), Events: []*troupev1.Event{
		decisionEvent(1, 1, agentChoice),
		decisionEvent(1, 2, instanceChoice),
	}})
	require.NoError(t, err)
	server.Kill()
	server.Start()
	require.Equal(t, []string{"1-2", "1-1"}, decisionIDs(t, s, trace.DecisionQuery{Limit: 9}))
}

// The decisions of a trace expire with the trace. Decisions of other traces are still found.
func TestStore_DeletesDecisionsWithTheirTrace(t *testing.T) {
	redis := miniredis.RunT(t)
	s := newStore(t, redis.Addr())
	for n := 1; n <= 300; n++ {
		epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(n), Events: []*troupev1.Event{decisionEvent(n, 1, agentChoice)}})
		require.NoError(t, err)
		if n > 1 {
			require.NoError(t, s.Append(t.Context(), traceRef(n), epoch, 0, []*troupev1.Event{{Sequence: 2}},
				&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED}))
		}
	}
	redis.FastForward(2 * time.Hour)
	found, err := s.Decisions(t.Context(), "default", trace.DecisionQuery{Limit: 9})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, traceRef(1).Trace, found[0].GetTraceId())
}

// Indexing decisions costs no extra round trip, because the pointers are written together with the events.
func TestStore_AppendsEventsAndPointersInOneRoundTrip(t *testing.T) {
	redis := miniredis.RunT(t)
	address, sent := countingProxy(t, redis.Addr())
	s := newStore(t, address)
	epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(1), Events: []*troupev1.Event{decisionEvent(1, 1, agentChoice)}})
	require.NoError(t, err)
	require.NoError(t, s.Append(t.Context(), traceRef(1), epoch, 0, []*troupev1.Event{decisionEvent(1, 2, agentChoice)}, nil)) // from here on Redis has the script
	before := sent.Load()
	require.NoError(t, s.Append(t.Context(), traceRef(1), epoch, 0, []*troupev1.Event{decisionEvent(1, 3, agentChoice), decisionEvent(1, 4, instanceChoice)}, nil))
	require.EqualValues(t, 1, sent.Load()-before)
}

// countingProxy starts a TCP proxy in front of another address. It returns the address of the proxy and a counter
// of the writes that it forwards.
func countingProxy(t *testing.T, to string) (string, *atomic.Int64) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	sent := &atomic.Int64{}
	go func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go copyAndCount(server, client, sent)
			go copyAndCount(client, server, &atomic.Int64{})
		}
	}()
	return lis.Addr().String(), sent
}

func copyAndCount(to, from net.Conn, count *atomic.Int64) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		count.Add(1)
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
