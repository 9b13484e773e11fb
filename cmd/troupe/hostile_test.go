package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/audit"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// hostileText is the text in every string of every response. It contains an escape sequence, a tab, a line break and a
// bidirectional override.
const (
	hostileText = "x\x1b[31m\ttroupe\r\nFORGED \u202ey"
	traceID     = "0af7651916cd43dd8448eb211c80319c"
)

// No text from the mesh, in any field, can move the cursor or look like a line that the command printed.
func TestCommands_EscapeText(t *testing.T) {
	addr := hostileMesh(t)
	for _, line := range []string{
		"get agents", "get instances", "get workflows", "get traces", "get decisions", "get sessions", "get session s", "get session s -o openai --agent a", "get approvals", "get artifacts s",
		"describe instance i", "describe session s", "describe trace " + traceID, "describe workflow w", "explain " + traceID, "replay " + traceID,
		"delete session s --receipt", "erase user u --yes", "search --user u word",
		"session pause s", "session resume s", "session compact s", "session clear s",
		"pause a", "resume a", "drain i", "quarantine a --reason why", "release a", "cancel " + traceID,
		"ask hello", "watch " + traceID, "approve s", "answer s c text", "chat", "chat --session s",
	} {
		t.Run(line, func(t *testing.T) {
			var told bytes.Buffer
			run(t.Context(), append(strings.Fields(line), "--addr", addr), console.Terminal{
				In: strings.NewReader("hello\n/pending\n\n"), Out: &told,
				Err: &told,
			})
			require.NotEmpty(t, told.String())
			requireEscaped(t, told.String())
		})
	}
}

// `troupe audit` escapes its entries too, because they contain names and reasons that callers chose.
func TestAudit_EscapesText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.New(audit.Config{Path: path, Name: "orchestrator", Log: zap.NewNop(), Meter: noop.Meter{}})
	require.NoError(t, err)
	log.Record(audit.Entry{
		Kind: audit.Admin, Actor: hostileText, Action: hostileText, Object: hostileText, Result: hostileText, Facts: map[string]string{"reason": hostileText},
	})
	require.NoError(t, log.Close())
	var told bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"audit", "show", path}, console.Terminal{Out: &told, Err: &told}), told.String())
	require.Contains(t, told.String(), "FORGED")
	requireEscaped(t, told.String())
}

func requireEscaped(t *testing.T, text string) {
	t.Helper()
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "\u202e")
	require.NotContains(t, text, "\r")
	for line := range strings.Lines(text) {
		require.False(t, strings.HasPrefix(line, "FORGED"), "%s", text)
	}
}

// hostileMesh serves every method of a mesh until the test ends, and returns its address.
func hostileMesh(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(sendHostileResponse))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-ended) })
	return lis.Addr().String()
}

// sendHostileResponse sends the response of a method with the hostile text in every field. For a trace it sends
// one event of each kind.
func sendHostileResponse(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")))
	if err != nil {
		return err
	}
	method := found.(protoreflect.MethodDescriptor)
	req, resp := newMessage(method.Input()), newMessage(method.Output())
	if err := stream.RecvMsg(req.Interface()); err != nil {
		return err
	}
	if list, ok := req.Interface().(*troupev1.ListMessagesRequest); ok && list.GetAfterSequence() > 0 {
		return stream.SendMsg(resp.Interface()) // there are no more
	}
	if list, ok := req.Interface().(*troupev1.ListRoundsRequest); ok && list.GetBefore() != nil {
		return stream.SendMsg(resp.Interface())
	}
	event := resp.Descriptor().Fields().ByName("event")
	if event == nil {
		fillMessage(resp, 0)
		return stream.SendMsg(resp.Interface())
	}
	kinds := event.Message().Oneofs().ByName("payload").Fields()
	end := event.Message().Fields().ByName("turn_result")
	for sequence := range kinds.Len() + 1 {
		kind := end
		if sequence < kinds.Len() {
			if kind = kinds.Get(sequence); kind == end {
				continue
			}
		}
		e := &troupev1.Event{}
		fillMessage(e.ProtoReflect(), 0)
		fillMessage(e.ProtoReflect().Mutable(kind).Message(), 0)
		e.TraceId, e.Sequence = traceID, uint64(sequence+1)
		resp.Set(event, protoreflect.ValueOf(e.ProtoReflect()))
		if err := stream.SendMsg(resp.Interface()); err != nil {
			return err
		}
	}
	return nil
}

func newMessage(of protoreflect.MessageDescriptor) protoreflect.Message {
	made, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		panic(err)
	}
	return made.New()
}

// fillMessage sets every field of a message. Each list gets one item.
func fillMessage(m protoreflect.Message, depth int) {
	if depth > 6 || m.Descriptor().FullName().Parent() == "google.protobuf" {
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Name() == "next_page_token":
		case f.IsMap():
			v := m.NewField(f)
			value := v.Map().NewValue()
			if f.MapValue().Message() != nil {
				fillMessage(value.Message(), depth+1)
			} else {
				value = hostileScalar(f.MapValue())
			}
			v.Map().Set(hostileScalar(f.MapKey()).MapKey(), value)
			m.Set(f, v)
		case f.IsList() && f.Message() != nil:
			v := m.NewField(f)
			fillMessage(v.List().AppendMutable().Message(), depth+1)
			m.Set(f, v)
		case f.IsList():
			v := m.NewField(f)
			v.List().Append(hostileScalar(f))
			m.Set(f, v)
		case f.Message() != nil:
			fillMessage(m.Mutable(f).Message(), depth+1)
		default:
			m.Set(f, hostileScalar(f))
		}
	}
}

func hostileScalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(hostileText)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(hostileText))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	default:
		panic(f.FullName())
	}
}
