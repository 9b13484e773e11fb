package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/wire/wiretest"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestStepFromProto_ContainsTheAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := wiretest.Answers.Draw(t, "answers")
		step := StepFromProto(&troupev1.ExecuteStepRequest{Answers: AnswersToProto(want)})
		if diff := cmp.Diff(want, step.Answers, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("want -, got +\n%s", diff)
		}
	})
}

// PendingToProto keeps all arguments, because a person decides by all of them, but cuts the reason to its limit.
func TestPendingToProto_KeepsAllArguments(t *testing.T) {
	p := execution.Pending{
		ID: "1-1-2", CallID: "call-1", Tool: "send_mail", Arguments: `{"text":"` + strings.Repeat("a", maxArgumentsBytes) + `"}`,
		Needs: execution.NeedApproval, Risk: execution.AtMostOnce, Reason: strings.Repeat("b", maxWarningBytes+1),
	}
	told := EventToProto(event.Event{Payload: event.ToolPending{Pending: p}}).GetToolCallPending().GetCall()
	p.Reason = p.Reason[:maxWarningBytes]
	require.Empty(t, cmp.Diff(p, pendingFromProto(told)))
}
