package scope

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// setFields sets every field of the given name in a message and its submessages. It returns how many fields it
// set. It leaves out StepRounds, which in a request is a position in a history and no object.
func setFields(m protoreflect.Message, name protoreflect.Name, value any, depth int) (n int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == name {
			m.Set(f, protoreflect.ValueOf(value))
			n++
		} else if f.Message() != nil && f.Cardinality() != protoreflect.Repeated && depth > 0 && f.Message().Name() != "StepRounds" {
			if inner := m.NewField(f); setFields(inner.Message(), name, value, depth-1) > 0 {
				n += setFields(m.Mutable(f).Message(), name, value, depth-1)
			}
		}
	}
	return n
}

// In every request, each field that names a session, turn, step or agent must match the credential. A request
// without such a field is rejected. The test also covers methods that are added later.
func TestScope_ChecksEveryRequestOfTheService(t *testing.T) {
	turn := turncred.Turn{Agent: "a", Tenant: "acme", Session: "s", ID: "t", User: "ann", Epoch: 7, Step: 2}
	own := map[protoreflect.Name]any{"session_id": "s", "turn_id": "t", "user_id": "ann", "epoch": int64(7), "step": int32(2), "agent": "a"}
	methods := troupev1.File_troupe_v1_memory_proto.Services().ByName("MemoryService").Methods()
	require.NotZero(t, methods.Len())
	for i := range methods.Len() {
		method := methods.Get(i)
		t.Run(string(method.Name()), func(t *testing.T) {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
			require.NoError(t, err)
			// request returns a request that matches the turn except for one field. It also returns how often each
			// field name occurs.
			request := func(other protoreflect.Name, value any) (_ any, names map[protoreflect.Name]int) {
				m := kind.New()
				names = map[protoreflect.Name]int{}
				for name, its := range own {
					if name == other {
						its = value
					}
					names[name] = setFields(m, name, its, 1)
				}
				return m.Interface(), names
			}
			req, names := request("", nil)
			if names["session_id"]+names["user_id"] == 0 {
				require.True(t, failure.Is(checkRequest(turn, "op", req), failure.PolicySecurity))
				return
			}
			if err := checkRequest(turn, "op", req); names["turn_id"] == 0 || names["epoch"] > 0 { // other requests are also valid for a replay
				require.NoError(t, err)
			}
			for name, c := range map[protoreflect.Name]struct {
				others []any
				mode   failure.Mode
			}{
				"session_id": {[]any{"other", ""}, failure.NotFound},
				"user_id":    {[]any{"bob", ""}, failure.PolicySecurity},
				"turn_id":    {[]any{"other", ""}, failure.Fenced},
				"epoch":      {[]any{int64(6), int64(8), int64(0)}, failure.Fenced},
				"step":       {[]any{int32(1), int32(3), int32(0)}, failure.PolicySecurity},
				"agent":      {[]any{"clerk", ""}, failure.PolicySecurity},
			} {
				for _, value := range c.others {
					if names[name] > 0 {
						req, _ := request(name, value)
						require.Equal(t, c.mode, failure.ModeOf(checkRequest(turn, "op", req)), "%s: %v", name, value)
					}
				}
			}
		})
	}
}

// A replayed step may read but not write.
func TestScope_ReplayMayOnlyRead(t *testing.T) {
	again := turncred.Turn{Agent: "a", Session: "s", ID: "t", Step: 1, Replay: true}
	for _, req := range []proto.Message{
		&troupev1.LoadHistoryRequest{SessionId: "s"}, &troupev1.MemoryServiceGetStateRequest{SessionId: "s"},
		&troupev1.GetRecordingRequest{SessionId: "s", TurnId: "t", Step: 1}, &troupev1.MemoryServiceGetArtifactRequest{SessionId: "s"},
	} {
		require.NoError(t, checkRequest(again, "op", req))
	}
	for _, req := range []proto.Message{
		&troupev1.UpdateStateRequest{SessionId: "s", TurnId: "t"}, &troupev1.CommitStepRequest{
			SessionId: "s",
			TurnId:    "t",
		}, &troupev1.JournalRequest{SessionId: "s", TurnId: "t"},
		&troupev1.GetRecordingRequest{SessionId: "s", TurnId: "other"}, &troupev1.RenewTurnRequest{SessionId: "s", TurnId: "t"},
	} {
		require.True(t, failure.Is(checkRequest(again, "op", req), failure.Fenced), "%T", req)
	}
	other := &troupev1.GetRecordingRequest{SessionId: "s", TurnId: "t", Step: 2}
	require.True(t, failure.Is(checkRequest(again, "op", other), failure.PolicySecurity), "what another agent did there")
	turn := turncred.Turn{Agent: "a", Session: "s", ID: "t", Epoch: 7}
	require.True(t, failure.Is(checkRequest(turn, "op", &troupev1.GetRecordingRequest{SessionId: "s", TurnId: "t"}), failure.PolicySecurity))
	require.True(t, failure.Is(checkRequest(turn, "op", &troupev1.SearchMemoryRequest{}), failure.PolicySecurity),
		"a turn without a user has no history to search")
}
