package scope

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/identity/turncred"
)

// put sets the fields of a name in a message, at its top or in messages of it that are not
// repeated, and returns how many there are.
func put(m protoreflect.Message, name protoreflect.Name, value any, depth int) (n int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == name {
			m.Set(f, protoreflect.ValueOf(value))
			n++
		} else if f.Message() != nil && f.Cardinality() != protoreflect.Repeated && depth > 0 {
			if inner := m.NewField(f); put(inner.Message(), name, value, depth-1) > 0 {
				n += put(m.Mutable(f).Message(), name, value, depth-1)
			}
		}
	}
	return n
}

// No request of the service slips by: whatever it names, wherever it has it, has to be what the
// turn is; and one that names nothing is nobody's. That holds for methods that are still to come.
func TestWithin_LooksAtEveryRequestOfTheService(t *testing.T) {
	turn := turncred.Turn{Agent: "a", Tenant: "acme", Session: "s", ID: "t", User: "ann", Epoch: 7}
	methods := troupev1.File_troupe_v1_memory_proto.Services().ByName("MemoryService").Methods()
	require.NotZero(t, methods.Len())
	for i := range methods.Len() {
		method := methods.Get(i)
		t.Run(string(method.Name()), func(t *testing.T) {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
			require.NoError(t, err)
			request := func(session, id, user string, epoch int64) (_ any, names map[protoreflect.Name]int) {
				m := kind.New()
				names = map[protoreflect.Name]int{}
				for name, value := range map[protoreflect.Name]any{"session_id": session, "turn_id": id, "user_id": user, "epoch": epoch} {
					names[name] = put(m, name, value, 1)
				}
				return m.Interface(), names
			}
			mode := func(session, id, user string, epoch int64) failure.Mode {
				req, _ := request(session, id, user, epoch)
				return failure.ModeOf(within(turn, "op", req))
			}
			req, names := request("s", "t", "ann", 7)
			if names["session_id"]+names["user_id"] == 0 {
				require.True(t, failure.Is(within(turn, "op", req), failure.PolicySecurity))
				return
			}
			if names["session_id"] > 0 {
				require.Equal(t, failure.NotFound, mode("other", "t", "ann", 7))
				require.Equal(t, failure.NotFound, mode("", "t", "ann", 7))
				require.Equal(t, failure.NotFound, mode("other", "other", "other", 8))
			}
			if names["user_id"] > 0 {
				require.Equal(t, failure.PolicySecurity, mode("s", "t", "bob", 7))
			}
			if names["turn_id"] > 0 {
				require.Equal(t, failure.Fenced, mode("s", "other", "ann", 7))
				require.Equal(t, failure.Fenced, mode("s", "", "ann", 7))
			}
			if names["epoch"] > 0 {
				require.Equal(t, failure.Fenced, mode("s", "t", "ann", 6))
				require.Equal(t, failure.Fenced, mode("s", "t", "ann", 8))
				require.Equal(t, failure.Fenced, mode("s", "t", "ann", 0))
			}
		})
	}
}

// What a step reads that is only run again, and that it stores nothing.
func TestWithin_AReplayOnlyReads(t *testing.T) {
	again := turncred.Turn{Agent: "a", Session: "s", ID: "t", Replay: true}
	for _, req := range []proto.Message{
		&troupev1.LoadHistoryRequest{SessionId: "s"}, &troupev1.MemoryServiceGetStateRequest{SessionId: "s"},
		&troupev1.GetRecordingRequest{SessionId: "s", TurnId: "t"}, &troupev1.MemoryServiceGetArtifactRequest{SessionId: "s"},
	} {
		require.NoError(t, within(again, "op", req))
	}
	for _, req := range []proto.Message{
		&troupev1.UpdateStateRequest{SessionId: "s", TurnId: "t"}, &troupev1.CommitStepRequest{SessionId: "s", TurnId: "t"}, &troupev1.JournalRequest{SessionId: "s", TurnId: "t"},
		&troupev1.GetRecordingRequest{SessionId: "s", TurnId: "other"}, &troupev1.RenewTurnRequest{SessionId: "s", TurnId: "t"},
	} {
		require.True(t, failure.Is(within(again, "op", req), failure.Fenced), "%T", req)
	}
	turn := turncred.Turn{Agent: "a", Session: "s", ID: "t", Epoch: 7}
	require.True(t, failure.Is(within(turn, "op", &troupev1.GetRecordingRequest{SessionId: "s", TurnId: "t"}), failure.PolicySecurity))
	require.True(t, failure.Is(within(turn, "op", &troupev1.SearchMemoryRequest{}), failure.PolicySecurity), "a turn of nobody has nobody's past")
}
