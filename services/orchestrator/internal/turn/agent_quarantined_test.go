package turn

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/audit/audittest"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// quarantine quarantines an agent for all runners of the rig.
func (r *rig) quarantine(agent string) {
	r.cache.Desired().Put(registry.DesiredState{Key: registry.AgentKey(agent), Kind: registry.Quarantine, Reason: "it misbehaves", Since: time.Now()})
}

// withAuditLog adds an audit log to the runner. The returned function closes the log and returns its entries,
// except those about the log itself.
func withAuditLog(t *testing.T, r *Runner) func() []audit.Entry {
	t.Helper()
	log, entries := audittest.NewLog(t)
	tel := telemetry.Discard()
	tel.Audit = log
	replaceRunner(t, r, func(c *Config) { c.Telemetry = tel })
	return entries
}

// A quarantine cancels the running step and fails its turn; a later commit of the worker is fenced. The agent
// gets no step until it is released (guarantee S18).
func TestTurn_EndsWhenTheAgentOfItsStepIsQuarantined(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	entries := withAuditLog(t, runner)
	working, over, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	rig.setScript("research", func(s *scriptedStep) error {
		close(working)
		<-over // the step was cancelled before, but its worker does not react
		_, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "too late" })
		late <- err
		return err
	})
	ended := make(chan []*troupev1.Event, 1)
	go func() { ended <- runToEnd(t, runner, textRequest("s1", "r1")) }()
	receive(t, working)
	began := time.Now()
	rig.quarantine("research")
	result := turnResult(receive(t, ended))
	took := time.Since(began)
	close(over)
	require.Less(t, took, 2*time.Second)
	t.Logf("from the quarantine to the end of the turn: %s", took)
	why := grpcfailure.FromProto(result.GetFailure())
	require.Equal(t, failure.PolicySecurity, why.Mode)
	require.Equal(t, "research", why.Facts["quarantined"])
	require.Equal(t, failure.Fenced, failure.ModeOf(receive(t, late)))

	asked := len(rig.askedAgents())
	again := turnResult(runToEnd(t, runner, textRequest("s2", "r1"))) // the coordinator hands off to the quarantined agent
	require.Equal(t, failure.PolicySecurity, grpcfailure.FromProto(again.GetFailure()).Mode)
	require.Equal(t, []string{"coordinator"}, rig.askedAgents()[asked:])

	rig.setScript("research", nil)
	rig.cache.Desired().EndQuarantine("research")
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runToEnd(t, runner, textRequest("s3", "r1"))).GetOutcome())

	all := entries()
	require.Len(t, all, 2, "one for each turn that ended so, and none for an ordinary one")
	require.Equal(t, audit.Denied, all[0].Kind)
	require.Equal(t, "orchestrator one", all[0].Actor)
	require.Equal(t, "research", all[0].Object)
	require.Equal(t, why.Facts["trace_id"], all[0].Facts["trace_id"])
}

// The descendants of the turn end together with it, whichever replica runs them. The worker keeps its streams open
// and publishes nothing. It may no longer cancel its children itself.
func TestTurn_EndsWithItsDescendantsWhenAnAgentIsQuarantined(t *testing.T) {
	rig := newRig(t)
	one, two := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	tending, done := context.WithCancel(t.Context())
	var tended sync.WaitGroup
	tended.Go(func() { two.Maintain(tending) })
	defer tended.Wait()
	defer done()
	began, below := make(chan string, 3), make(chan []*troupev1.Event, 2)
	holds := func(s *scriptedStep) error {
		began <- s.req.GetAgent()
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	}
	begins := func(by *Runner, target string) func(*scriptedStep) error {
		return func(s *scriptedStep) error {
			req := textRequest("below-"+target, "r1")
			req.Target = target
			req.Parent = &troupev1.Parent{TraceId: s.req.GetTraceId(), RootTraceId: s.req.GetRootTraceId(), TurnId: s.req.GetTurnId(), Step: 1}
			go func() { below <- runToEnd(t, by, req) }()
			return holds(s)
		}
	}
	rig.setScript("research", begins(one, "synthesis"))
	rig.setScript("synthesis", begins(two, "clarification"))
	rig.setScript("clarification", holds)
	ended := startRequest(t, one, textRequest("s1", "r1"))
	for range 3 {
		receive(t, began)
	}
	stored := func() bool { // events are stored in the background
		all, err := one.cfg.Traces.Store().List(t.Context(), "", trace.Query{Limit: 9})
		return err == nil && len(all) == 3
	}
	require.Eventually(t, stored, patience, 5*time.Millisecond)
	quarantined := time.Now()
	rig.quarantine("research")
	require.Equal(t, failure.PolicySecurity, grpcfailure.FromProto(turnResult(receive(t, ended)).GetFailure()).Mode)
	require.Less(t, time.Since(quarantined), 2*time.Second)
	for range 2 {
		result := turnResult(receive(t, below))
		require.Equal(t, cancelledOutcome, result.GetOutcome())
		require.Contains(t, result.GetFailure().GetMessage(), "agent research, for which it works, is quarantined")
	}
	t.Logf("all below had ended after %s", time.Since(quarantined))
}

// lateListTraces is a trace store whose first List does not contain the children of a turn.
type lateListTraces struct {
	trace.Store
	hasListed atomic.Bool
}

func (l *lateListTraces) List(ctx context.Context, tenant string, q trace.Query) ([]*troupev1.Trace, error) {
	if q.Root != "" && !l.hasListed.Swap(true) {
		return nil, nil
	}
	return l.Store.List(ctx, tenant, q)
}

// A child turn that was requested just before the quarantine ends too.
func TestTurn_EndsWithANewChildWhenAnAgentIsQuarantined(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	traces := runner.cfg.Traces.Store()
	replaceRunner(t, runner, func(c *Config) { c.Traces = trace.New(&lateListTraces{Store: traces}, zap.NewNop()) })
	working, below := make(chan struct{}), make(chan []*troupev1.Event, 1)
	rig.setScript("synthesis", func(s *scriptedStep) error {
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	rig.setScript("research", func(s *scriptedStep) error {
		req := textRequest("below", "r1")
		req.Target, req.Parent = "synthesis", &troupev1.Parent{TraceId: s.req.GetTraceId(), RootTraceId: s.req.GetRootTraceId(), Step: 1}
		go func() { below <- runToEnd(t, runner, req) }()
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	ended := startRequest(t, runner, textRequest("s1", "r1"))
	receive(t, working)
	stored := func() bool { // events are stored in the background
		all, err := traces.List(t.Context(), "", trace.Query{Limit: 9})
		return err == nil && len(all) == 2
	}
	require.Eventually(t, stored, patience, 5*time.Millisecond)
	rig.quarantine("research")
	require.Equal(t, failure.PolicySecurity, grpcfailure.FromProto(turnResult(receive(t, ended)).GetFailure()).Mode)
	require.Equal(t, cancelledOutcome, turnResult(receive(t, below)).GetOutcome())
}

// All branches of a round end together with the quarantined branch and do not delay the end of the turn.
func TestTurn_EndsWithBranchesWhenAnAgentOfOneIsQuarantined(t *testing.T) {
	rig := newBranchesRig(t)
	var working sync.WaitGroup
	working.Add(2)
	waits := func(s *scriptedStep) error {
		working.Done()
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	}
	rig.setScript("research", waits)
	rig.setScript("coordinator", waits)
	runner, ended := rig.newRunner(t, "one"), make(chan []*troupev1.Event, 1)
	go func() { ended <- runToEnd(t, runner, textRequest("s1", "r1")) }()
	working.Wait()
	began := time.Now()
	rig.quarantine("research")
	result := turnResult(receive(t, ended))
	require.Less(t, time.Since(began), 2*time.Second)
	require.Equal(t, failure.PolicySecurity, grpcfailure.FromProto(result.GetFailure()).Mode)
}

func TestTurn_LogsItsTakeover(t *testing.T) {
	rig := newRig(t)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	entries := withAuditLog(t, second)
	working, released := make(chan struct{}), make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error {
		rig.setScript("synthesis", nil)
		close(working)
		<-released
		return s.commitAnswer("too late")
	})
	left := runUntilStepStarts(t, first, textRequest("s1", "r1"), "synthesis")
	receive(t, working)
	rig.expireLeases()
	events := runToEnd(t, second, textRequest("s1", "r1"))
	close(released)
	require.NoError(t, receive(t, left))
	all := entries()
	require.Len(t, all, 1)
	require.Equal(t, audit.Takeover, all[0].Kind)
	require.Equal(t, "orchestrator two", all[0].Actor)
	require.Equal(t, events[0].GetTraceId(), all[0].Object)
}
