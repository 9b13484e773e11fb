package scope

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

const (
	ownTraceID     = "0af7651916cd43dd8448eb211c80319c"
	childTraceID   = "11111111111111111111111111111111"
	foreignTraceID = "22222222222222222222222222222222"
	unknownTraceID = "33333333333333333333333333333333"
	rootTraceID    = "44444444444444444444444444444444"
	endedTraceID   = "55555555555555555555555555555555"
)

// findTrace returns one of four traces of the tenant acme.
func findTrace(_ context.Context, ref trace.Ref) (*troupev1.Trace, error) {
	sessions := map[string]string{ownTraceID: "s1", childTraceID: turnctx.ChildSessionPrefix("s1") + "a", foreignTraceID: "s2", endedTraceID: "s1"}
	if session, ok := sessions[ref.Trace]; ok && ref.Tenant == "acme" {
		state := troupev1.TraceState_TRACE_STATE_RUNNING
		if ref.Trace == endedTraceID {
			state = troupev1.TraceState_TRACE_STATE_ENDED
		}
		return &troupev1.Trace{TraceId: ref.Trace, SessionId: session, State: state}, nil
	}
	return nil, failure.Newf(failure.NotFound, "trace.Get", "trace_id: no trace %s is known; traces are kept for a while after they end", ref.Trace)
}

// statusOfTurn returns the status of a turn that is driven under epoch 3 and whose step 1 has ended.
func statusOfTurn(ctx context.Context, ref trace.Ref, step int) (trace.Status, error) {
	record, err := findTrace(ctx, ref)
	if failure.Is(err, failure.NotFound) {
		return trace.Status{}, nil
	}
	return trace.Status{Ended: record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED, TurnEpoch: 3, StepEnded: step == 1}, err
}

// scopeTest checks calls on the server side with credentials of a turn.
type scopeTest struct {
	t     *testing.T
	a     *turncred.Authority
	scope rpc.ScopeChecker
}

func newScopeTest(t *testing.T) *scopeTest {
	t.Helper()
	self, err := identity.Open(identity.Config{DevCA: t.TempDir()}, identity.Orchestrator, "", zap.NewNop())
	require.NoError(t, err)
	a := turncred.New(self)
	return &scopeTest{t, a, New(a, findTrace, statusOfTurn)}
}

func (s *scopeTest) checkCall(turn turncred.Turn, req any, more ...string) error {
	s.t.Helper()
	credential, err := s.a.Issue(turn, time.Time{})
	require.NoError(s.t, err)
	md := metadata.Pairs(append([]string{turnctx.CredentialKey, credential}, more...)...)
	ctx := metadata.NewIncomingContext(s.t.Context(), md)
	who, err := turncred.Authenticate(s.a, rpc.PrincipalFromCertificate)(ctx)
	require.NoError(s.t, err)
	require.Equal(s.t, identity.Principal{Role: identity.Worker, Name: turn.Agent, Tenant: turn.Tenant}, who)
	_, err = s.scope(identity.WithPrincipal(ctx, who), "/troupe.v1.OrchestratorService/X", req)
	return err
}

// A turn may request only its children (guarantees, section 4.2).
func TestScope_TurnMayRequestOnlyItsChildren(t *testing.T) {
	c := newScopeTest(t)
	turn := turncred.Turn{
		Agent: "research", Tenant: "acme", Session: "s1", ID: "t1", User: "ann", Trace: ownTraceID, Epoch: 3, Step: 2, Root: rootTraceID,
		Level: 1, Budget: budget.Default(),
	}
	valid := func() *troupev1.OrchestrateRequest {
		share := budget.Default()
		share.FanOut = budget.Unlimited
		return &troupev1.OrchestrateRequest{
			SessionId: turnctx.ChildSessionPrefix("s1") + "a", UserId: "ann", Target: "writer", Budget: wire.LimitsToProto(share),
			Parent: &troupev1.Parent{TraceId: ownTraceID, RootTraceId: rootTraceID, Depth: 2},
		}
	}
	require.NoError(t, c.checkCall(turn, valid()))
	require.NoError(t, c.checkCall(turn, valid(), "troupe-parent-trace", ownTraceID))
	on := valid()
	on.From = &troupev1.From{TraceId: childTraceID}
	require.NoError(t, c.checkCall(turn, on))
	for name, test := range map[string]struct {
		change func(*troupev1.OrchestrateRequest)
		mode   failure.Mode
	}{
		"no parent":          {func(r *troupev1.OrchestrateRequest) { r.Parent = nil }, failure.PolicySecurity},
		"another's parent":   {func(r *troupev1.OrchestrateRequest) { r.Parent.TraceId = foreignTraceID }, failure.PolicySecurity},
		"another user":       {func(r *troupev1.OrchestrateRequest) { r.UserId = "bob" }, failure.PolicySecurity},
		"nobody":             {func(r *troupev1.OrchestrateRequest) { r.UserId = "" }, failure.PolicySecurity},
		"its own session":    {func(r *troupev1.OrchestrateRequest) { r.SessionId = "s1" }, failure.NotFound},
		"another session":    {func(r *troupev1.OrchestrateRequest) { r.SessionId = "s2" }, failure.NotFound},
		"a new session":      {func(r *troupev1.OrchestrateRequest) { r.SessionId = "" }, failure.NotFound},
		"one below another":  {func(r *troupev1.OrchestrateRequest) { r.SessionId = turnctx.ChildSessionPrefix("s2") + "a" }, failure.NotFound},
		"from another trace": {func(r *troupev1.OrchestrateRequest) { r.From = &troupev1.From{TraceId: foreignTraceID} }, failure.NotFound},
		"another run":        {func(r *troupev1.OrchestrateRequest) { r.Parent.RootTraceId = ownTraceID }, failure.PolicySecurity},
		"a run of its own":   {func(r *troupev1.OrchestrateRequest) { r.Parent.RootTraceId = "" }, failure.PolicySecurity},
		"less deep":          {func(r *troupev1.OrchestrateRequest) { r.Parent.Depth = 1 }, failure.PolicySecurity},
		"no depth":           {func(r *troupev1.OrchestrateRequest) { r.Parent.Depth = 0 }, failure.PolicySecurity},
		"itself":             {func(r *troupev1.OrchestrateRequest) { r.Target = "research" }, failure.PolicySecurity},
		"no budget":          {func(r *troupev1.OrchestrateRequest) { r.Budget = nil }, failure.PolicySecurity},
		"more tokens":        {func(r *troupev1.OrchestrateRequest) { *r.Budget.Tokens++ }, failure.PolicySecurity},
		"more depth":         {func(r *troupev1.OrchestrateRequest) { *r.Budget.Depth++ }, failure.PolicySecurity},
		"only warned": {func(r *troupev1.OrchestrateRequest) {
			r.Budget.Policy = troupev1.BudgetPolicy_BUDGET_POLICY_WARN
		}, failure.PolicySecurity},
		"an approval": {func(r *troupev1.OrchestrateRequest) {
			r.Input = &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{Answers: []*troupev1.CallAnswer{{Id: "c1"}}}}
		}, failure.PolicySecurity},
		"from a missing one": {func(r *troupev1.OrchestrateRequest) { r.From = &troupev1.From{TraceId: unknownTraceID} }, failure.NotFound},
	} {
		req := valid()
		test.change(req)
		err := c.checkCall(turn, req)
		require.True(t, failure.Is(err, test.mode), "%s: %v", name, err)
	}
	require.True(t, failure.Is(c.checkCall(turn, valid(), "troupe-parent-trace", foreignTraceID), failure.PolicySecurity))
	again := turn
	again.Replay = true
	require.True(t, failure.Is(c.checkCall(again, valid()), failure.PolicySecurity), "a step that is run again begins nothing")
	late := turn
	late.Trace = endedTraceID
	req := valid()
	req.Parent.TraceId = endedTraceID
	require.True(t, failure.Is(c.checkCall(late, req), failure.TurnNotOpen))
	turn.Budget.Policy = budget.Warn
	req = valid()
	req.Budget.Tokens, req.Budget.Policy = nil, troupev1.BudgetPolicy_BUDGET_POLICY_WARN
	require.NoError(t, c.checkCall(turn, req), "nothing but its depth is bounded")
}

// A worker may request and read nothing after its turn was taken over or its step has ended. Its credential is
// still valid, and sometimes only the trace shows the takeover (guarantee S6).
func TestScope_WorkerMayRequestNothingAfterATakeover(t *testing.T) {
	c := newScopeTest(t)
	turn := turncred.Turn{
		Agent: "research", Tenant: "acme", Session: "s1", ID: "t1", User: "ann", Trace: ownTraceID, Epoch: 3, Step: 2, Root: rootTraceID,
		Level: 1, Budget: budget.Default(),
	}
	over, fenced, unknown := turn, turn, turn
	over.Step, fenced.Epoch, unknown.Trace = 1, 2, unknownTraceID
	for name, request := range map[string]func(trace string) any{
		"ask": func(trace string) any {
			return &troupev1.OrchestrateRequest{
				SessionId: turnctx.ChildSessionPrefix("s1") + "a", UserId: "ann", Target: "writer", Budget: wire.LimitsToProto(budget.Default()),
				Parent: &troupev1.Parent{TraceId: trace, RootTraceId: rootTraceID, Depth: 2},
			}
		},
		"get":          func(trace string) any { return &troupev1.GetTraceRequest{TraceId: trace} },
		"get below":    func(string) any { return &troupev1.GetTraceRequest{TraceId: childTraceID} },
		"watch":        func(trace string) any { return &troupev1.WatchTraceRequest{TraceId: trace} },
		"cancel below": func(string) any { return &troupev1.CancelTraceRequest{TraceId: childTraceID} },
	} {
		require.NoError(t, c.checkCall(turn, request(ownTraceID)), name)
		require.NoError(t, c.checkCall(unknown, request(unknownTraceID)), "%s: of a turn that has just begun", name)
		err := c.checkCall(fenced, request(ownTraceID))
		require.True(t, failure.Is(err, failure.Fenced), "%s: %v", name, err)
		if err = c.checkCall(over, request(ownTraceID)); name == "cancel below" {
			require.NoError(t, err, "what a step set going it ends, also when it ran out of time")
			continue
		}
		require.True(t, failure.Is(err, failure.TurnNotOpen), "%s: %v", name, err)
	}
	require.True(t, failure.Is(c.checkCall(over, &troupev1.CancelTraceRequest{TraceId: ownTraceID}), failure.TurnNotOpen))
}

// A turn sees its own trace and the traces of its children, and cannot tell whether others exist.
func TestScope_TurnSeesOnlyItsOwnTraces(t *testing.T) {
	c := newScopeTest(t)
	turn := turncred.Turn{Agent: "research", Tenant: "acme", Session: "s1", ID: "t1", Trace: ownTraceID, Epoch: 3}
	elsewhere := turn
	elsewhere.Tenant = "other"
	for name, request := range map[string]func(id string) any{
		"get":    func(id string) any { return &troupev1.GetTraceRequest{TraceId: id} },
		"watch":  func(id string) any { return &troupev1.WatchTraceRequest{TraceId: id} },
		"cancel": func(id string) any { return &troupev1.CancelTraceRequest{TraceId: id} },
	} {
		require.NoError(t, c.checkCall(turn, request(ownTraceID)), name)
		require.NoError(t, c.checkCall(turn, request(childTraceID)), name)
		missing := c.checkCall(turn, request(unknownTraceID))
		require.True(t, failure.Is(missing, failure.NotFound), "%s: %v", name, missing)
		_, err := findTrace(t.Context(), trace.Ref{Trace: unknownTraceID})
		require.EqualError(t, missing, err.Error())
		for _, err := range []error{c.checkCall(turn, request(foreignTraceID)), c.checkCall(elsewhere, request(foreignTraceID)), c.checkCall(elsewhere,
			request(childTraceID))} {
			require.True(t, failure.Is(err, failure.NotFound), "%s: %v", name, err)
		}
	}
	require.True(t, failure.Is(c.checkCall(turn, &troupev1.ListTracesRequest{}), failure.PolicySecurity))
	require.True(t, failure.Is(c.checkCall(turn, &troupev1.GetSessionRequest{SessionId: "s1"}), failure.PolicySecurity))
}
