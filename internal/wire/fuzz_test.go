package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Any message from another process or from a store can be converted without a panic: registrations, steps,
// journals, recordings and turns.
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
		if in, err := instancewire.UnmarshalInstance(b); err == nil {
			_, _ = instancewire.MarshalInstance(in)
		}
	},
	decoder(func(m *troupev1.Instance) { instancewire.InstanceFromProto(m) }),
	decoder(func(m *troupev1.ExecuteStepRequest) { wire.StepFromProto(m) }),
	decoder(func(m *troupev1.StepResult) { wire.ResultToProto(wire.ResultFromProto(m)) }),
	decoder(func(m *troupev1.JournalEntry) { wire.EntryToProto(wire.EntryFromProto(m)) }),
	decoder(func(m *troupev1.Message) { wire.MessageToProto(wire.MessageFromProto(m)) }),
	decoder(func(m *troupev1.Turn) { memorywire.TurnToProto(memorywire.TurnFromProto(m)) }),
	decoder(func(m *troupev1.Session) { memorywire.SessionToProto(memorywire.SessionFromProto(m)) }),
	decoder(func(m *troupev1.BeginTurnRequest) { memorywire.BeginFromProto("t", m) }),
	decoder(func(m *troupev1.BeginTurnResponse) { memorywire.BegunFromProto(m) }),
	decoder(func(m *troupev1.CommitStepRequest) { memorywire.CommitFromProto("t", m) }),
	decoder(func(m *troupev1.FailTurnRequest) { memorywire.FailFromProto("t", m) }),
	decoder(func(m *troupev1.UpdateStateRequest) { memorywire.StateUpdateFromProto("t", m) }),
	decoder(func(m *troupev1.Auth) { wire.AuthFromProto(m) }),
	decoder(func(m *troupev1.Budget) { wire.LimitsFromProto(m); wire.LedgerFromProto(m) }),
	decoder(func(m *troupev1.Answers) { wire.AnswersFromProto(m.GetAnswers()) }),
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
