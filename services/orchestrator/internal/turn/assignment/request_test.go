package assignment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// The routing authority sees the same view of a turn for each of its decisions.
//
// Req: OC-14
func TestNewRoutingRequest_IsTheSameForEveryDecision(t *testing.T) {
	req := request.Request{
		Text: "What may an agent write?", Parent: &troupev1.Parent{TraceId: "u"},
		Labels: request.Labels{Profile: "fast", Metadata: map[string]string{"team": "blue"}, Needs: []string{"law"}},
	}
	require.Equal(t, selection.Request{
		TraceID: "t", Profile: "fast", Goal: "What may an agent write?", Task: "desk", Metadata: map[string]string{"team": "blue"},
		Needs: []string{"law"}, Parent: "u",
	}, NewRoutingRequest(req, "t", workflow.Step{Name: "desk"}))
}

// Events explain why an instance did not get a step, with the words of docs/routing.md.
func TestInstanceChoice_NamesWhyOthersWereRejected(t *testing.T) {
	told := InstanceChoice(selection.Decision{Rejected: []selection.Rejected{
		{ID: "research-1", Availability: selection.Full},
		{ID: "research-2", Availability: selection.Draining},
	}})
	require.Equal(t, "full", told.GetRejected()[0].GetWhy())
	require.Equal(t, "draining", told.GetRejected()[1].GetWhy())
}

// A credential makes its instance preferred, and the strategy of the step becomes the fallback. A step with a
// fixed instance keeps it.
func TestTurn_InstancePolicyPrefersTheInstanceThatCanOpenACredential(t *testing.T) {
	with := &Turn{Turn: session.Turn{Answers: []execution.Answer{{ID: "1-2-2"}, {ID: "1-2-3", Sealed: "x", AuthID: "key@research-2"}}}}
	weights := map[string]int{"v2": 10}
	for _, tc := range []struct{ is, want selection.Policy }{
		{selection.Policy{}, selection.Policy{
			Strategy: selection.Manual, Instance: "research-2", Fallback: selection.RoundRobin,
			NamedBy: "the credential of an answer",
		}},
		{
			selection.Policy{Strategy: selection.Weighted, Weights: weights},
			selection.Policy{
				Strategy: selection.Manual, Instance: "research-2", Fallback: selection.Weighted, Weights: weights,
				NamedBy: "the credential of an answer",
			},
		},
		{selection.Policy{Strategy: selection.Manual, Instance: "research-1"}, selection.Policy{Strategy: selection.Manual, Instance: "research-1"}},
	} {
		require.Equal(t, tc.want, with.InstancePolicy(2, tc.is))
		require.Equal(t, tc.is, with.InstancePolicy(3, tc.is), "it is for one step")
		require.Equal(t, tc.is, (&Turn{}).InstancePolicy(2, tc.is))
	}
}

// The goal is never empty, whatever the user sent.
func TestGoalText_IsNeverEmpty(t *testing.T) {
	sent := conversation.User("")
	sent.Attachments = []conversation.Attachment{{Name: "a.pdf"}, {Name: "b.png"}}
	for want, c := range map[string]struct {
		text    string
		history []conversation.Message
	}{
		"Why?":                      {text: " Why?\n"},
		"files: a.pdf b.png":        {history: []conversation.Message{sent, conversation.Assistant("a", "So.")}},
		"What?":                     {history: []conversation.Message{conversation.User("What?")}},
		"continue the conversation": {},
	} {
		require.Equal(t, want, goalText(c.text, c.history))
	}
}
