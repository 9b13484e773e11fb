package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// mailTool builds a tool that sends letters and counts its calls.
type mailTool struct{ calls atomic.Int32 }

type mailArguments struct {
	To string `json:"to"`
}

func (m *mailTool) tool(t *testing.T, name string) tool.Tool {
	t.Helper()
	made, err := tool.Func(name, "Sends.", func(_ context.Context, in mailArguments) (string, error) {
		m.calls.Add(1)
		return "sent to " + in.To, nil
	})
	require.NoError(t, err)
	return tool.WithEffect(execution.AtMostOnce, made)
}

func sendCall(to string) scripted.Reply {
	return scripted.Call(conversation.ToolCall{ID: "c1", Name: "send", Arguments: `{"to":"` + to + `"}`})
}

// mailAgent returns the configuration of the recorded agent, which sends a letter and says so.
func mailAgent(t *testing.T, sent *mailTool, replies ...scripted.Reply) agent.Config {
	t.Helper()
	return agent.Config{
		Name: "a", Instructions: "Send letters.", Model: scripted.New(replies...), Tools: []tool.Tool{sent.tool(t, "send")},
	}
}

// runRecorded runs a step of the agent with recording and returns the request to replay it.
func (e *workerEnv) runRecorded(t *testing.T, c agent.Config) *troupev1.ReplayStepRequest {
	t.Helper()
	r := e.start(t, c)
	req := e.beginTurn(t, c.Name, "s1")
	req.Recorded = true
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.NoError(t, r.stop())
	return &troupev1.ReplayStepRequest{Step: req, Result: result}
}

// replayStep replays the step in another worker. It checks that the replay calls no model and stores nothing.
func (e *workerEnv) replayStep(t *testing.T, c agent.Config, req *troupev1.ReplayStepRequest) *troupev1.StepReplay {
	t.Helper()
	found, messages := e.storedSession(t, "s1")
	model, silent := c.Model.(*scripted.Model)
	r := e.start(t, c)
	resp, err := r.steps.ReplayStep(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, r.stop())
	after, then := e.storedSession(t, "s1")
	require.Equal(t, found, after)
	require.Equal(t, messages, then)
	if silent {
		require.Empty(t, model.Requests(), "no model is called")
	}
	return resp.GetReplay()
}

func TestReplayStep_FindsNoDifferenceForTheSameAgent(t *testing.T) {
	s, sent := newWorkerEnv(t), new(mailTool)
	req := s.runRecorded(t, mailAgent(t, sent, sendCall("bob"), scripted.Say("Done.")))
	again := new(mailTool)
	done := s.replayStep(t, mailAgent(t, again), req)
	require.Nil(t, done.GetDifference(), "%v", done)
	require.Empty(t, done.GetChangedPrompts())
	require.EqualValues(t, 2, done.GetModelCalls())
	require.EqualValues(t, 1, done.GetToolCalls())
	require.EqualValues(t, 1, sent.calls.Load())
	require.Zero(t, again.calls.Load(), "no tool is called")
}

// A recording is complete and contains no secret.
func TestExecuteStep_RecordsItsInput(t *testing.T) {
	s, sent := newWorkerEnv(t), new(mailTool)
	r := s.start(t, mailAgent(t, sent, sendCall("bob"), scripted.Say("Done.")))
	req := s.beginTurn(t, "a", "s1")
	req.Recorded, req.Profile, req.Metadata = true, "brief", map[string]string{"k": "v"}
	req.Auth = &troupev1.Auth{Actor: "alice", Credentials: map[string]string{"token": "hunter2"}}
	req.Prior = []*troupev1.StepResult{{Step: 1, Agent: "b", Text: "the recording only references what the turn already stores"}, {
		Step: 2, Agent: "c",
		Failure: grpcfailure.ToProto(failure.New(failure.NoWorker, "test", "nobody")),
	}}
	readStep(t, r.execute(t.Context(), t, req))

	entries, err := s.memory.Recording(t.Context(), session.Ref{Session: "s1"}, "t1", 1, 0)
	require.NoError(t, err)
	var numbers []int
	for _, e := range entries {
		numbers = append(numbers, e.Number)
	}
	require.Equal(t, []int{0, 1, 2, 2, 3}, numbers, "the input, the first reply, the start and the end of the tool call, and the last reply")
	require.NotContains(t, string(entries[0].StepInput), "hunter2")
	require.NotContains(t, string(entries[0].StepInput), "the recording only references what the turn already stores")
	require.NotContains(t, string(entries[0].StepInput), "hello")
	var given troupev1.ExecuteStepRequest
	require.NoError(t, proto.Unmarshal(entries[0].StepInput, &given))
	require.Equal(t, "brief", given.GetProfile())
	require.Equal(t, map[string]string{"k": "v"}, given.GetMetadata())
	require.EqualValues(t, 1, given.GetHistory()[0].GetSequence())
	require.EqualValues(t, 1, given.GetPrior()[0].GetStep())
	require.NotNil(t, given.GetPrior()[1].GetFailure())
	require.NotEmpty(t, entries[1].Digest)
	require.Equal(t, `{"to":"bob"}`, entries[3].Arguments)
	require.Equal(t, "Done.", entries[4].Reply.Text)
}

func TestExecuteStep_RecordsOnlyOnRequest(t *testing.T) {
	s, sent := newWorkerEnv(t), new(mailTool)
	r := s.start(t, mailAgent(t, sent, scripted.Say("Done.")))
	readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	entries, err := s.memory.Recording(t.Context(), session.Ref{Session: "s1"}, "t1", 1, 0)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestReplayStep_FindsTheFirstDifference(t *testing.T) {
	s := newWorkerEnv(t)
	req := s.runRecorded(t, mailAgent(t, new(mailTool), sendCall("bob"), scripted.Say("Done.")))
	for name, test := range map[string]struct {
		change func(t *testing.T, c *agent.Config, sent *mailTool)
		want   *troupev1.Difference
	}{
		"other arguments": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) {
				c.Handlers = append(c.Handlers, hook.BeforeEachTool(func(_ context.Context, call *hook.Call) error {
					call.Arguments = `{"to":"eve"}`
					return nil
				}))
			},
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ARGUMENTS, Number: 2, Subject: "send", Recorded: `{"to":"bob"}`, Now: `{"to":"eve"}`,
			},
		},
		"a removed tool": {
			change: func(t *testing.T, c *agent.Config, sent *mailTool) { c.Tools = []tool.Tool{sent.tool(t, "post")} },
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_OUTCOME, Number: 2, Subject: "send",
				Recorded: "success: sent to bob", Now: `not_found: There is no tool "send"; there are post.`,
			},
		},
		"a tool that a handler stops": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) {
				c.Handlers = append(c.Handlers, hook.BeforeEachTool(func(_ context.Context, call *hook.Call) error {
					call.Reject("Not today.")
					return nil
				}))
			},
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_MISSING_CALL, Number: 2, Subject: "send", Recorded: `send {"to":"bob"}`,
			},
		},
		"another tool": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) {
				c.Handlers = append(c.Handlers, hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
					for i := range reply.ToolCalls {
						reply.ToolCalls[i].Name = "other"
					}
					return nil
				}))
			},
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_CALL, Number: 2, Recorded: `send {"to":"bob"}`, Now: `other {"to":"bob"}`,
			},
		},
		"an extra call": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) {
				c.Handlers = append(c.Handlers, hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
					if len(reply.ToolCalls) == 0 {
						reply.ToolCalls = []conversation.ToolCall{{Name: "send", Arguments: `{"to":"eve"}`}}
					}
					return nil
				}))
			},
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_EXTRA_CALL, Number: 4, Subject: "send", Now: `send {"to":"eve"}`,
			},
		},
		"other text": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) {
				c.Handlers = append(c.Handlers, hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
					reply.Text += " Bye."
					return nil
				}))
			},
			want: &troupev1.Difference{Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_TEXT, Recorded: "Done.", Now: "Done. Bye."},
		},
		"a question": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) { c.AsksUser = true },
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_RESULT, Subject: "a question to the user", Recorded: "false", Now: "true",
			},
		},
		"a failure": {
			change: func(_ *testing.T, c *agent.Config, _ *mailTool) {
				c.Handlers = append(c.Handlers, hook.BeforeLLM(func(context.Context, *hook.LLMRequest) error {
					return failure.New(failure.PolicySecurity, "test", "not that")
				}))
			},
			want: &troupev1.Difference{
				Kind: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_FAILURE, Recorded: "no failure", Now: "policy_security: not that",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			again := new(mailTool)
			c := mailAgent(t, again)
			test.change(t, &c, again)
			done := s.replayStep(t, c, req)
			require.True(t, proto.Equal(test.want, done.GetDifference()), "%v", done)
			require.Zero(t, again.calls.Load(), "no tool is called")
		})
	}
}

func TestReplayStep_ReportsExtraModelCalls(t *testing.T) {
	s := newWorkerEnv(t)
	req := s.runRecorded(t, mailAgent(t, new(mailTool), sendCall("bob"), scripted.Say("Done.")))
	c := mailAgent(t, new(mailTool))
	c.Instructions = "Send letters, and be brief."
	done := s.replayStep(t, c, req)
	require.Nil(t, done.GetDifference())
	require.Len(t, done.GetChangedPrompts(), 2)
	require.Equal(t, []string{"instructions"}, done.GetChangedPrompts()[1].GetParts())
}

// A replay also replays the calls of an agent that is used as a tool, one by one.
func TestReplayStep_ReplaysAgentsUsedAsTools(t *testing.T) {
	outer := func(t *testing.T, sent *mailTool, replies, below []scripted.Reply, handlers ...hook.Handler) agent.Config {
		t.Helper()
		c := mailAgent(t, sent, below...)
		c.Name, c.Handlers = "clerk", handlers
		clerk, err := agent.New(c)
		require.NoError(t, err)
		asTool, err := flow.AsTool(clerk, flow.AsToolConfig{})
		require.NoError(t, err)
		return agent.Config{Name: "a", Model: scripted.New(replies...), Tools: []tool.Tool{asTool}}
	}
	s := newWorkerEnv(t)
	ask := scripted.Call(conversation.ToolCall{ID: "c1", Name: "clerk", Arguments: `{"request":"Write to Bob."}`})
	req := s.runRecorded(t, outer(t, new(mailTool), []scripted.Reply{ask, scripted.Say("Done.")}, []scripted.Reply{sendCall("bob"), scripted.Say("Sent.")}))

	done := s.replayStep(t, outer(t, new(mailTool), nil, nil), req)
	require.Nil(t, done.GetDifference(), "%v", done)
	require.EqualValues(t, 4, done.GetModelCalls())
	require.EqualValues(t, 2, done.GetToolCalls())
}

// A replay does not call a tool that was missing at the time of the recording, because the call would be real.
func TestReplayStep_DoesNotCallANewTool(t *testing.T) {
	s := newWorkerEnv(t)
	c := mailAgent(t, new(mailTool), sendCall("bob"), scripted.Say("There is no such tool."))
	c.Tools = nil
	req := s.runRecorded(t, c)
	sent := new(mailTool)
	d := s.replayStep(t, mailAgent(t, sent), req).GetDifference()
	require.Equal(t, troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_OUTCOME, d.GetKind())
	require.Contains(t, d.GetNow(), "would be called")
	require.Zero(t, sent.calls.Load())
}

// A failed step is replayed up to the point of its failure.
func TestReplayStep_ReplaysAFailedStep(t *testing.T) {
	s := newWorkerEnv(t)
	broken := scripted.Fail(failure.New(failure.ResourceAPI, "test", "away"))
	req := s.runRecorded(t, mailAgent(t, new(mailTool), sendCall("bob"), broken))
	require.NotNil(t, req.GetResult().GetFailure())
	_, err := s.memory.FailTurn(t.Context(), memory.Fail{
		Ref: session.Ref{Session: "s1"}, TurnID: "t1", Epoch: req.GetStep().GetEpoch(), Outcome: session.OutcomeFailed,
		Failure: grpcfailure.FromProto(req.GetResult().GetFailure()),
	})
	require.NoError(t, err)
	done := s.replayStep(t, mailAgent(t, new(mailTool)), req)
	require.Nil(t, done.GetDifference(), "%v", done)
	require.EqualValues(t, 1, done.GetModelCalls())
	require.EqualValues(t, 1, done.GetToolCalls())
}

func TestReplayStep_StoresNoArtifact(t *testing.T) {
	s := newWorkerEnv(t)
	saving := func(content string) agent.Config {
		c := agent.Config{Name: "a", Model: scripted.New(scripted.Say("Done."))}
		c.Handlers = []hook.Handler{hook.AfterAgent(func(ctx context.Context, turn *hook.Turn) (string, error) {
			_, err := turn.Memory().SaveArtifact(ctx, "letter", "text/plain", []byte(content))
			return "", err
		})}
		return c
	}
	req := s.runRecorded(t, saving("Dear Bob"))
	require.Nil(t, s.replayStep(t, saving("Dear Bob"), req).GetDifference())
	artifacts, err := s.memory.ListArtifacts(t.Context(), session.Ref{Session: "s1"})
	require.NoError(t, err)
	require.Len(t, artifacts, 1)
}

func TestReplayStep_WithoutARecordingIsNotFound(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, mailAgent(t, new(mailTool), scripted.Say("Done.")))
	req := s.beginTurn(t, "a", "s1")
	_, result := readStep(t, r.execute(t.Context(), t, req))
	_, err := r.steps.ReplayStep(t.Context(), &troupev1.ReplayStepRequest{Step: req, Result: result})
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.NotFound), "%v", err)
}
