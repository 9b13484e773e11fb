package local_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// sealedAnswer returns an answer that brings a credential, sealed by the broker's key, for a waiting call.
func sealedAnswer(t *testing.T, s *local.Session, p execution.Pending, credential string) local.Input {
	t.Helper()
	require.Equal(t, execution.NeedAuth, p.Needs)
	text, err := broker.Seal(p.Auth.ID, s.ID(), p.Auth.Key, secret.New(credential))
	require.NoError(t, err)
	in := answerTo(p, execution.Approve, "")
	in.Answers[0].Sealed = string(text)
	return in
}

// A tool of a nested agent waits for a credential, and the answer brings it. A new Agent, which stands for another
// process, asks for the credential again. A credential that was sealed for another session is rejected.
// Req: LP-37, LP-40
func answerBringsACredential(t *testing.T, store memory.Store) {
	var ran []string
	made := func(below []scripted.Reply, replies ...scripted.Reply) *agent.Agent {
		found, err := tool.Func("lookup", "Looks something up.", func(ctx context.Context, in topic) (string, error) {
			key, _ := execution.Credential(ctx, "library")
			ran = append(ran, in.Query+" "+key.Reveal())
			return "found " + in.Query, nil
		})
		require.NoError(t, err)
		aide, _ := scriptedAgent(t, agent.Config{
			Name: "aide", Tools: []tool.Tool{tool.WithLogin(execution.Login{Name: "library", Prompt: "Your card."}, found)},
		}, below...)
		asks, err := flow.AsTool(aide, flow.AsToolConfig{})
		require.NoError(t, err)
		a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{asks}}, replies...)
		return a
	}
	calls := scripted.Call(conversation.ToolCall{ID: "call-1", Name: "aide", Arguments: `{"request": "weather"}`})
	looks := []scripted.Reply{lookupReply("oslo")}
	s := openSession(t, made(looks, calls), local.Config{Store: store})
	ask(t, s, "Weather?")
	require.Equal(t, session.AuthRequired, s.State())
	_, info := storedMessages(t, store, s)
	require.Equal(t, session.AuthRequired, info.State)
	first := s.Pending()[0]

	// The credential was sealed for another session.
	other := openSession(t, made(looks, calls), local.Config{Store: store})
	ask(t, other, "Weather?")
	replayed := sealedAnswer(t, s, first, "secret")
	replayed.Answers[0].ID = other.Pending()[0].ID
	runAnswers(t, other, replayed)
	require.Equal(t, session.AuthRequired, other.State())
	require.Contains(t, other.Pending()[0].Reason, "it was not sealed to the key of this call")
	require.Empty(t, ran)

	// The credential was sealed for another process.
	elsewhere := openSession(t, made([]scripted.Reply{scripted.Say("Sunny.")}, scripted.Say("It is sunny.")), local.Config{Store: store, ID: s.ID()})
	runAnswers(t, elsewhere, sealedAnswer(t, s, first, "secret"))
	require.Equal(t, session.AuthRequired, elsewhere.State())
	again := elsewhere.Pending()[0]
	require.Contains(t, again.Reason, "the key that it was sealed to is gone")
	require.Empty(t, ran)

	done := runAnswers(t, elsewhere, sealedAnswer(t, elsewhere, again, "secret"))
	require.Equal(t, []string{"oslo secret"}, ran)
	require.Equal(t, session.Ready, elsewhere.State())
	require.Equal(t, "It is sunny.", done.Result.Text)
}
