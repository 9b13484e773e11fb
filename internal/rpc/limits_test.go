package rpc

import (
	"testing"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// The published limits in docs/limits.md (guarantee S9) equal the constants in the code. Other tests check that
// the limits are enforced: for servers here and in test/attack, for the .proto by the tests of the validation
// interceptor, and for sessions in memorytest.
func TestLimits_MatchTheDocumentation(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	for _, row := range []struct {
		what       string
		want, have any
	}{
		{"a message of a client to a server", 4 * mib, MaxMessageBytes},
		{"a message between processes", 16 * mib, maxInternalMessageBytes},
		{"headers of a call", 16 * kib, maxHeaderBytes},
		{"calls at once of a connection", 256, maxStreamsPerConn},
		{"connections of an address", 32, MaxPeerConnections},
		{"connections of an address inside the mesh", 1024, MaxInternalPeerConnections},
		{"time to connect", 5 * time.Second, connectionTimeout},

		{"a message of a conversation", 256 * kib, conversation.MaxMessageBytes},
		{"text of a request", uint64(256 * kib), fieldRules(t, &troupev1.OrchestrateRequest{}, "text").GetString().GetMaxBytes()},
		{"messages of a step", uint64(64), fieldRules(t, &troupev1.CommitStepRequest{}, "messages").GetRepeated().GetMaxItems()},
		{"steps of a turn", int32(50), fieldRules(t, &troupev1.ExecuteStepRequest{}, "step").GetInt32().GetLte()},
		{"time of a turn", int64(600), fieldRules(t, &troupev1.OrchestrateRequest{}, "timeout").GetDuration().GetLte().GetSeconds()},
		{"messages of a session", 10_000, session.MaxMessages},
		{"bytes of a session", 64 * mib, session.MaxBytes},
		{"bytes of an artifact", 64 * mib, memory.MaxArtifactBytes},
		{"a piece of an artifact", uint64(512 * kib), fieldRules(t, &troupev1.PutArtifactRequest{}, "chunk").GetBytes().GetMaxLen()},
		{"metadata of a turn", 16 * kib, execution.MaxTurnMetadataBytes},
		{"metadata of a session", 16 * kib, memory.MaxSessionMetadataBytes},
		{"capabilities of an instance", 16, registry.MaxCapabilities},
		{"time of a start", int64(600), fieldRules(t, &troupev1.LifecycleSettings{}, "timeout").GetDuration().GetLte().GetSeconds()},
		{"retries of a start", int32(100), fieldRules(t, &troupev1.LifecycleSettings{}, "max_retries").GetInt32().GetLte()},
		{"text of a result in a journal", uint64(256 * kib), fieldRules(t, &troupev1.JournalEntry{}, "text").GetString().GetMaxBytes()},
		{"idempotency key", "^[A-Za-z0-9_.:-]{1,128}$", fieldRules(t, &troupev1.OrchestrateRequest{}, "request_id").GetString().GetPattern()},
	} {
		require.Equal(t, row.want, row.have, row.what)
	}
}

func fieldRules(t *testing.T, m proto.Message, field protoreflect.Name) *validate.FieldRules {
	t.Helper()
	d := m.ProtoReflect().Descriptor().Fields().ByName(field)
	require.NotNil(t, d, "%T has no field %s", m, field)
	found, err := protovalidate.ResolveFieldRules(d)
	require.NoError(t, err)
	return found
}
