package lifecycleserver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/rpc"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Any sequence of calls leaves the instance in a valid state, from which it can be shut down.
func FuzzLifecycle(f *testing.F) {
	methods := troupev1.LifecycleService_ServiceDesc.Methods
	f.Add([]byte{0, 1, 2, 3}, []byte(nil))
	for n := range methods {
		f.Add([]byte{0, byte(n), byte(n), 1, 1}, []byte("\x0a\x02\x08\x01\x12\x03why"))
		f.Add([]byte{byte(n), 0, 2, 3, byte(n)}, []byte("\x12\xc8\x01x"))
	}
	f.Fuzz(func(t *testing.T, order, body []byte) {
		instance := lifecycle.New(lifecycle.Config{Capacity: 1, StartupTimeout: time.Second, DrainTimeout: time.Millisecond})
		server := &Server{
			Instance: instance, ID: "i", Agent: "a", DefaultDrain: time.Millisecond,
			State: ownership.NewAgentState("a", map[string]ownership.Owner{"why": ownership.Agent}, nil),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, n := range order[:min(len(order), 20)] {
			m := methods[int(n)%len(methods)]
			decode := func(req any) error {
				if shutdown, ok := req.(*troupev1.ShutdownRequest); ok {
					defer func() { shutdown.Drain = nil }() // the fuzzed drain may be 10 minutes
				}
				if err := proto.Unmarshal(body, req.(proto.Message)); err != nil {
					return err
				}
				return rpc.Validate(req.(proto.Message))
			}
			if _, err := m.Handler(server, ctx, decode, nil); panics.Is(err) {
				require.NoError(t, err)
			}
			require.NotEmpty(t, instance.Status().State, m.MethodName)
		}
		require.NoError(t, ctx.Err())
		_ = instance.Shutdown(ctx, 0, "the end")
		require.Equal(t, lifecycle.Terminated, instance.Status().State)
	})
}
