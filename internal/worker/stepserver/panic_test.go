package stepserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/worker/steprun"
	"github.com/troupe-dev/troupe/pkg/agent"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// panickingMemory is a memory service whose RenewTurn panics.
type panickingMemory struct{ unavailableMemory }

func (panickingMemory) RenewTurn(context.Context, memory.Lease, time.Duration) error { panic("secret") }

// A panic in a background goroutine of a step ends the step but not the worker.
func TestRunStep_APanicInABackgroundGoroutineEndsTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := agent.New(agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"well"}, Wait: make(chan struct{})})})
		require.NoError(t, err)
		s := &Server{log: zap.NewNop(), agent: a.Name(), store: panickingMemory{}, runner: steprun.New(a, "", panickingMemory{})}
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		said := &troupev1.Message{Role: troupev1.Role_ROLE_USER, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hello"}}}}
		_, err = s.runStep(ctx, stop, &troupev1.ExecuteStepRequest{
			SessionId: "s", TurnId: "t", Step: 1, Attempt: 1, Epoch: 1, Agent: "a", History: []*troupev1.Message{said},
		}, &stepStream{stream: &timedStream{}})
		require.Error(t, err)
		require.True(t, panics.Is(context.Cause(ctx)), "%v", context.Cause(ctx))
		require.NotContains(t, grpcfailure.ToProto(err).String(), "secret")
	})
}
