package attack

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rate"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// allMethods returns the methods of all services. They are sorted, so that a seed always selects the same method.
// Shutdown is left out because it would end the fuzzed server; pkg/worker fuzzes it. No mesh serves the
// conformance service.
func allMethods() (all []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("troupe.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(j).Name())
				if method != troupev1.LifecycleService_Shutdown_FullMethodName && service.Name() != "ConformanceService" {
					all = append(all, method)
				}
			}
		}
		return true
	})
	slices.Sort(all)
	return all
}

// callTimeout returns the time limit for a call of the method. It is short for streams, because some of them wait
// for future events.
func callTimeout(method string) time.Duration {
	if m, ok := findMethod(method); ok && m.IsStreamingServer() {
		return 200 * time.Millisecond
	}
	return 2 * time.Second
}

func findMethod(method string) (protoreflect.MethodDescriptor, bool) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	m, ok := found.(protoreflect.MethodDescriptor)
	return m, ok && err == nil
}

// seedRequest returns an almost valid request for a method, with every text field set to a valid id.
func seedRequest(method string) []byte {
	m, ok := findMethod(method)
	if !ok {
		return nil
	}
	made := populatedMessage(m.Input(), 3)
	if made == nil {
		return nil
	}
	body, err := proto.Marshal(made.Interface())
	if err != nil {
		return nil
	}
	return body
}

// populatedMessage returns a message with all fields set, down to a fixed depth.
func populatedMessage(d protoreflect.MessageDescriptor, depth int) protoreflect.Message {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil || depth == 0 {
		return nil
	}
	m := typ.New()
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case f.IsMap():
		case f.Kind() == protoreflect.MessageKind:
			if inner := populatedMessage(f.Message(), depth-1); inner != nil && f.IsList() {
				m.Mutable(f).List().Append(protoreflect.ValueOfMessage(inner))
			} else if inner != nil {
				m.Set(f, protoreflect.ValueOfMessage(inner))
			}
		case f.Kind() == protoreflect.StringKind && !f.IsList():
			m.Set(f, protoreflect.ValueOfString("research"))
		case f.Kind() == protoreflect.BytesKind && !f.IsList():
			m.Set(f, protoreflect.ValueOfBytes([]byte("bytes")))
		case f.Kind() == protoreflect.Int32Kind && !f.IsList():
			m.Set(f, protoreflect.ValueOfInt32(1))
		case f.Kind() == protoreflect.Int64Kind && !f.IsList():
			m.Set(f, protoreflect.ValueOfInt64(1))
		case f.Kind() == protoreflect.Uint64Kind && !f.IsList():
			m.Set(f, protoreflect.ValueOfUint64(1))
		default:
		}
	}
	return m
}

// unlimitedRates writes a rates file without effective limits, so that no fuzzed call is rejected for its rate.
func unlimitedRates(f *testing.F) string {
	var text strings.Builder
	for _, class := range slices.Sorted(maps.Keys(rate.Defaults())) {
		fmt.Fprintf(&text, "%s: {rate: 0}\n", class)
	}
	file := filepath.Join(f.TempDir(), "rates.yaml")
	require.NoError(f, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}

// Every method of every service answers arbitrary bytes. No server crashes or hangs, and no response contains
// details that belong only in the log.
func FuzzPorts(f *testing.F) {
	all := allMethods()
	for n, method := range all {
		f.Add(uint8(n), []byte(nil))
		f.Add(uint8(n), seedRequest(method))
	}
	f.Add(uint8(0), []byte{0xff})
	m := rig.StartInProcess(f, rig.Config{RouteWait: time.Second, RatesFile: unlimitedRates(f)})
	worker := rig.Worker(rig.Agents[0])
	conns := map[string]*grpc.ClientConn{
		"OrchestratorService": m.Conn, "SessionService": m.Conn,
		"LifecycleService": m.DialAs(identity.ID{Role: identity.Orchestrator}, worker),
		"AgentService":     m.DialAs(identity.ID{Role: identity.Orchestrator}, worker),
	}
	memory := []*grpc.ClientConn{m.DialAs(identity.ID{Role: identity.Orchestrator}, rig.Memory), m.DialAs(identity.ID{
		Role: identity.Worker,
		Name: rig.Agents[0],
	}, rig.Memory)}
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		method := all[int(n)%len(all)]
		service, _, _ := strings.Cut(strings.TrimPrefix(method, "/troupe.v1."), "/")
		at := []*grpc.ClientConn{conns[service]}
		if service == "MemoryService" {
			at = memory
		}
		for _, conn := range at {
			ctx, cancel := context.WithTimeout(t.Context(), callTimeout(method))
			began := time.Now()
			_, err := sendBytes(ctx, conn, method, body)
			cancel()
			require.Less(t, time.Since(began), waitTimeout, "%s does not end with its caller", method)
			code := status.Code(err)
			require.NotContains(t, []codes.Code{codes.Unimplemented, codes.DataLoss}, code, "%s: %v", method, err)
			require.NotContains(t, err.Error(), "internal error", "%s with %q", method, body)
		}
	})
}
