package scenario

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

const unknownTrace = "0123456789abcdef0123456789abcdef"

// Every invalid input gets a clear error with the right failure mode and changes no stored data.
func invalidInputChangesNothing(t *testing.T, m *rig.Mesh) {
	for name, c := range map[string]struct {
		change func(*troupev1.OrchestrateRequest)
		mode   failure.Mode
		says   string
	}{
		"no input": {func(r *troupev1.OrchestrateRequest) { r.Input = nil }, failure.UserInvalidInput, "input"},
		"empty text": {
			func(r *troupev1.OrchestrateRequest) { r.Input = &troupev1.OrchestrateRequest_Text{} }, failure.UserInvalidInput,
			"text: must hold more than white space",
		},
		"blank text": {
			func(r *troupev1.OrchestrateRequest) { r.Input = &troupev1.OrchestrateRequest_Text{Text: " \n\t"} },
			failure.UserInvalidInput, "text: must hold more than white space",
		},
		"long text": {func(r *troupev1.OrchestrateRequest) {
			r.Input = &troupev1.OrchestrateRequest_Text{Text: strings.Repeat("x", 256<<10+1)}
		}, failure.UserInvalidInput, "262144 bytes"},
		"session id":      {func(r *troupev1.OrchestrateRequest) { r.SessionId = "a:b{c}" }, failure.UserInvalidInput, "session_id"},
		"long session id": {func(r *troupev1.OrchestrateRequest) { r.SessionId = strings.Repeat("s", 65) }, failure.UserInvalidInput, "{1,64}"},
		"request id":      {func(r *troupev1.OrchestrateRequest) { r.RequestId = "a b" }, failure.UserInvalidInput, "request_id"},
		"unknown target":  {func(r *troupev1.OrchestrateRequest) { r.Target = "nowhere" }, failure.NotFound, `"nowhere"`},
		"far too long": {func(r *troupev1.OrchestrateRequest) {
			r.Input = &troupev1.OrchestrateRequest_Text{Text: strings.Repeat("x", 5<<20)}
		}, failure.ResourceQuota, "message is too large"},
		"too short a time": {func(r *troupev1.OrchestrateRequest) { r.Timeout = tooShort }, failure.UserInvalidInput, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			req := textRequest(question)
			session := req.SessionId
			c.change(req)
			err := requireRejected(t, m, req)
			require.True(t, failure.Is(err, c.mode), "%v", err)
			require.ErrorContains(t, err, c.says)
			_, err = m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: session})
			require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound), "nothing is stored")
		})
	}
	t.Run("unknown session", func(t *testing.T) {
		_, err := m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: "none"})
		require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound))
	})
	t.Run("unknown trace", func(t *testing.T) {
		_, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: unknownTrace})
		require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound))
		for _, err := range m.Watch(t.Context(), unknownTrace, 0) {
			require.True(t, failure.Is(err, failure.NotFound), "%v", err)
		}
	})
	t.Run("a trace id that is none", func(t *testing.T) {
		_, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: "x"})
		require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.UserInvalidInput))
	})
	t.Run("beyond the end of a trace", func(t *testing.T) {
		trace := runTurn(t, m, textRequest(question))[0].GetTraceId()
		for _, err := range m.Watch(t.Context(), trace, 10_000) {
			require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
			require.ErrorContains(t, err, "after_sequence")
		}
	})
}

func listsAgentsInstancesAndTraces(t *testing.T, m *rig.Mesh) {
	agents, err := m.ListAgents(t.Context(), &troupev1.ListAgentsRequest{})
	require.NoError(t, err)
	require.Len(t, agents.GetAgents(), len(rig.Agents))
	for _, a := range agents.GetAgents() {
		require.EqualValues(t, 1, a.GetReady(), a.GetName())
		require.Equal(t, []string{"research-assistant"}, a.GetWorkflows())
		require.NotEmpty(t, a.GetDescription())
	}
	instances, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "research"})
	require.NoError(t, err)
	require.Len(t, instances.GetInstances(), 1)
	in := instances.GetInstances()[0]
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_READY, in.GetState())
	require.Positive(t, in.GetIncarnation())
	require.Positive(t, in.GetCapacity())

	newest := runTurn(t, m, textRequest(question))[0].GetTraceId()
	traces, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{PageSize: 3})
	require.NoError(t, err)
	require.Len(t, traces.GetTraces(), 3)
	require.Equal(t, newest, traces.GetTraces()[0].GetTraceId())
}
