package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// What another process sent or stored is translated whatever it is: registrations, steps,
// journals and recordings, turns.
func FuzzFromProto(f *testing.F) {
	for kind := range decoders {
		f.Add(uint8(kind), []byte(nil))
		f.Add(uint8(kind), []byte(`{"agent":"a","instanceId":"i","state":"INSTANCE_STATE_READY"}`))
		f.Add(uint8(kind), []byte("\x0a\x03abc\x12\x03\x0a\x01a\x1a\x02\x08\x01\x22\x00\x28\x01\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	}
	f.Fuzz(func(_ *testing.T, kind uint8, stored []byte) {
		decoders[int(kind)%len(decoders)](stored)
	})
}

var decoders = []func([]byte){
	func(b []byte) {
		if in, err := UnmarshalInstance(b); err == nil {
			_, _ = MarshalInstance(in)
		}
	},
	decoder(func(m *troupev1.Instance) { InstanceFromProto(m) }),
	decoder(func(m *troupev1.ExecuteStepRequest) { StepFromProto(m) }),
	decoder(func(m *troupev1.StepResult) { ResultToProto(ResultFromProto(m)) }),
	decoder(func(m *troupev1.JournalEntry) { EntryToProto(EntryFromProto(m)) }),
	decoder(func(m *troupev1.Message) { MessageToProto(MessageFromProto(m)) }),
	decoder(func(m *troupev1.Turn) { TurnToProto(TurnFromProto(m)) }),
	decoder(func(m *troupev1.Session) { SessionToProto(SessionFromProto(m)) }),
	decoder(func(m *troupev1.BeginTurnRequest) { BeginFromProto("t", m) }),
	decoder(func(m *troupev1.BeginTurnResponse) { BegunFromProto(m) }),
	decoder(func(m *troupev1.CommitStepRequest) { CommitFromProto("t", m) }),
	decoder(func(m *troupev1.FailTurnRequest) { FailFromProto("t", m) }),
	decoder(func(m *troupev1.UpdateStateRequest) { StateUpdateFromProto("t", m) }),
	decoder(func(m *troupev1.Auth) { AuthFromProto(m) }),
	decoder(func(m *troupev1.Budget) { LimitsFromProto(m); LedgerFromProto(m) }),
	decoder(func(m *troupev1.Answers) { AnswersFromProto(m.GetAnswers()) }),
}

func decoder[M any, P interface {
	*M
	proto.Message
}](do func(P),
) func([]byte) {
	return func(b []byte) {
		var m M
		if proto.Unmarshal(b, P(&m)) == nil {
			do(&m)
		}
	}
}
