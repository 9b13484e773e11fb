package stepserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/worker/steprun"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// unavailableMemory is a memory service that cannot be reached.
type unavailableMemory struct{ memory.Store }

func (unavailableMemory) RenewTurn(context.Context, memory.Lease, time.Duration) error {
	return errAway
}

func (unavailableMemory) CommitStep(context.Context, memory.Commit) (int64, error) { return 0, errAway }

var errAway = failure.New(failure.SystemNetwork, "test", "away")

// timedStream is the stream of a step. It records when the last message was sent.
type timedStream struct {
	troupev1.AgentService_ExecuteStepServer
	last time.Time
}

func (t *timedStream) Send(*troupev1.ExecuteStepResponse) error { t.last = time.Now(); return nil }

// A step that cannot commit during an outage fails with a lost lease. It fails before the orchestrator would
// consider the worker lost.
func TestRunStep_FailedCommitDuringAnOutageIsALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := agent.New(agent.Config{Name: "a", Model: scripted.New(scripted.Say("done"))})
		require.NoError(t, err)
		s := &Server{log: zap.NewNop(), agent: a.Name(), store: unavailableMemory{}, runner: steprun.New(a, "", unavailableMemory{})}
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		stream := &timedStream{}
		said := &troupev1.Message{Role: troupev1.Role_ROLE_USER, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hello"}}}}
		_, err = s.runStep(ctx, stop, &troupev1.ExecuteStepRequest{
			SessionId: "s", TurnId: "t", Step: 1, Attempt: 1, Epoch: 1, Agent: "a", History: []*troupev1.Message{said},
		}, &stepStream{stream: stream})
		why, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "true", why.Facts["lost_lease"], "%v", err)
		require.Less(t, time.Since(stream.last), 6*time.Second)
	})
}
