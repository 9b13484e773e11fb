package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/gobuild"
	"github.com/troupe-dev/troupe/test/rig"
)

// twinSession is a session with an agent in one of the runtimes: a program of one's own, or a mesh.
type twinSession interface {
	say(text string) string // runs a turn and returns its answer, or the mode of its failure
	// sayWithin is say with a limit of its own for the iterations of each step (0 keeps the agent's).
	sayWithin(iterations int, text string) string
	answer(yes bool) string // approves or denies the first waiting call
	// result brings the result of the first waiting call, which the client has run.
	result(text string) string
	compact(keep int) // replaces all but the latest messages by a summary
	clear()           // removes the messages
	pause()           // pauses the session
	reopen()          // another process with the same agent takes over
	export() string   // the history of the agent as messages of the Chat Completions API
}

// twinScenario is a story that both runtimes play with the same agent and the same replies of its model.
type twinScenario struct {
	config  func(t *testing.T) agent.Config // without its name and its model
	flow    bool                            // the agent is a sequence of two
	replies []scripted.Reply
	play    func(s twinSession) (answers []string)
}

// twinWindow is how many messages a turn gets. The defaults differ: a workflow has 10 (RA-21), a program 50 (LP-20).
const twinWindow = 10

var twinScenarios = map[string]twinScenario{
	"two turns": {
		config:  func(*testing.T) agent.Config { return agent.Config{Instructions: "Be brief."} },
		replies: []scripted.Reply{scripted.Say("Hi."), scripted.Say("Fine.")},
		play:    func(s twinSession) []string { return []string{s.say("Hello"), s.say("How are you?")} },
	},
	"tool rounds": {
		config: lookupAgentConfig,
		replies: []scripted.Reply{
			looksUp("oslo", "error"), scripted.Say("Sunny."), looksUp("bergen"), looksUp("voss"), scripted.Say("Rain."), scripted.Say("Yes."),
		},
		play: func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("Bergen?"), s.say("Sure?")} },
	},
	"thoughts and data of the provider": {
		config: lookupAgentConfig,
		replies: []scripted.Reply{
			{Thought: "I look.", Deltas: []string{"One moment."}, ToolCalls: []conversation.ToolCall{{ID: "a", Name: "lookup", Arguments: `{"query":"x"}`, Extra: "opaque"}}},
			{Thought: "I have it.", Deltas: []string{"X."}},
			scripted.Say("Y."),
		},
		play: func(s twinSession) []string { return []string{s.say("x?"), s.say("y?")} },
	},
	"calls with the same id": {
		config: lookupAgentConfig,
		replies: []scripted.Reply{
			scripted.Call(lookup("1", "a")), scripted.Say("A."), scripted.Call(lookup("1", "b")), scripted.Say("B."), scripted.Say("C."),
		},
		play: func(s twinSession) []string { return []string{s.say("a?"), s.say("b?"), s.say("c?")} },
	},
	"more turns than the window": {
		config:  lookupAgentConfig,
		replies: manyTurns(12),
		play: func(s twinSession) (answers []string) {
			for n := range 12 {
				answers = append(answers, s.say(fmt.Sprint(n, "?")))
			}
			return answers
		},
	},
	"text of third parties": {
		config: func(t *testing.T) agent.Config {
			c := lookupAgentConfig(t)
			c.Tools[0] = tool.WithScope(tool.Scope{Untrusted: true}, tool.WithEffect(execution.Read, c.Tools[0]))
			return c
		},
		replies: []scripted.Reply{scripted.Say("Hi."), looksUp("oslo"), scripted.Say("Sunny."), scripted.Say("Yes."), looksUp("bergen"), scripted.Say("Rain.")},
		play: func(s twinSession) []string {
			return []string{s.say("Hello"), s.say("Oslo?"), s.say("Sure?"), s.say("Bergen?")}
		},
	},
	// Req: CO-6, C-8
	"a limit of iterations for one turn": {
		config:  lookupAgentConfig,
		replies: []scripted.Reply{looksUp("oslo"), looksUp("bergen"), looksUp("voss"), scripted.Say("Rain.")},
		play:    func(s twinSession) []string { return []string{s.sayWithin(2, "Weather?"), s.say("And?")} },
	},
	"a question to the user": {
		config:  lookupAgentConfig,
		replies: []scripted.Reply{looksUp("ask"), looksUp("oslo"), scripted.Say("Sunny.")},
		play:    func(s twinSession) []string { return []string{s.say("Weather?"), s.say("Oslo")} },
	},
	"an approval": {
		config:  askingFirst,
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("Sunny."), scripted.Say("Yes.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.answer(true), s.say("Sure?")} },
	},
	"a denial": {
		config:  askingFirst,
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("I may not look."), scripted.Say("No.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.answer(false), s.say("Sure?")} },
	},
	"a text instead of an approval": {
		config:  askingFirst,
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("All right."), scripted.Say("Yes.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("Forget it"), s.say("Sure?")} },
	},
	"state in the instructions": {
		config: func(t *testing.T) agent.Config {
			c := lookupAgentConfig(t)
			c.Instructions, c.OutputKey = "You said before: {last?}", "last"
			return c
		},
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("Sunny."), scripted.Say("Yes."), scripted.Say("Still.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("Sure?"), s.say("Really?")} },
	},
	"a handler adds messages": {
		config: func(t *testing.T) agent.Config {
			c := lookupAgentConfig(t)
			c.Handlers = []hook.Handler{hook.AfterEachTool(func(_ context.Context, call *hook.Call) error {
				call.Add(conversation.User("Be brief, please."))
				return nil
			})}
			return c
		},
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("Sunny."), scripted.Say("Yes.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("Sure?")} },
	},
	// Req: CO-68
	"the trace of earlier turns": {
		config: func(t *testing.T) agent.Config {
			c := lookupAgentConfig(t)
			c.Handlers = []hook.Handler{hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) error {
				all, err := turn.Memory().EarlierEntries(ctx, 0)
				latest, err2 := turn.Memory().EarlierEntries(ctx, 3)
				turn.Add(conversation.User(describeEntries(all) + "latest:\n" + describeEntries(latest)))
				return errors.Join(err, err2)
			})}
			traced, err := tool.Func("trace", "Shows the trace.", func(ctx context.Context, _ struct{}) (string, error) {
				all, err := hook.InTool(ctx).Memory().EarlierEntries(ctx, 0)
				return describeEntries(all), err
			})
			require.NoError(t, err)
			c.Tools = append(c.Tools, traced)
			return c
		},
		replies: []scripted.Reply{
			looksUp("oslo", "error"), scripted.Say("Sunny."), scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")),
			scripted.Call(conversation.ToolCall{Name: "trace", Arguments: "{}"}), scripted.Say("Yes."),
		},
		play: func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("Sure?"), s.say("Really?")} },
	},
	"as many rounds as it may": {
		config: func(t *testing.T) agent.Config {
			c := lookupAgentConfig(t)
			c.MaxIterations = 2
			return c
		},
		replies: []scripted.Reply{looksUp("oslo"), looksUp("bergen"), scripted.Say("Yes.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("Sure?")} },
	},
	"a sequence of agents": {
		config:  lookupAgentConfig,
		flow:    true,
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("Sun."), scripted.Say("It is sunny."), looksUp("oslo"), scripted.Say("Sun."), scripted.Say("It still is.")},
		play:    func(s twinSession) []string { return []string{s.say("Oslo?"), s.say("And now?")} },
	},
	// Req: CO-74
	"pictures of a tool": {
		config: takingPictures,
		replies: []scripted.Reply{
			looksUp("fog", "sun"), scripted.Say("Fog and sun."), scripted.Say("Still."), looksUp("fog"), scripted.Say("Fog."), scripted.Say("Yes."),
		},
		play: func(s twinSession) []string {
			answers := []string{s.say("Look."), s.say("Sure?"), s.say("And now?")}
			s.reopen()
			return append(answers, s.say("Sure?"))
		},
	},
	"a compaction": {
		config:  lookupAgentConfig,
		replies: append(manyTurns(4), scripted.Say("Yes.")),
		play: func(s twinSession) (answers []string) {
			for n := range 4 {
				answers = append(answers, s.say(fmt.Sprint(n, "?")))
			}
			s.compact(3)
			return append(answers, s.say("Sure?"))
		},
	},
	"a session that is cleared": {
		config:  lookupAgentConfig,
		replies: append(manyTurns(2), scripted.Say("What?")),
		play: func(s twinSession) []string {
			answers := []string{s.say("0?"), s.say("1?")}
			s.clear()
			return append(answers, s.say("Sure?"))
		},
	},
	"a pause": {
		config:  lookupAgentConfig,
		replies: append(manyTurns(1), scripted.Say("Yes.")),
		play: func(s twinSession) []string {
			answers := []string{s.say("0?")}
			s.pause()
			return append(answers, s.say("Sure?"))
		},
	},
	"another process": {
		config:  lookupAgentConfig,
		replies: append(manyTurns(1), scripted.Say("Yes.")),
		play: func(s twinSession) []string {
			answers := []string{s.say("0?")}
			s.reopen()
			return append(answers, s.say("Sure?"))
		},
	},
}

// twinException is a difference between the runtimes, with its reason.
type twinException struct {
	field    string // of messages, in all requests; or
	scenario string // whose requests differ
	from     int    // the first request that differs, from 1
	reason   string
}

// roundsOfFailedTurns is why requests after a failed turn differ.
const roundsOfFailedTurns = "a program keeps what a failed turn did with the messages; a mesh keeps it in the journal, for a turn that resumes it, and the next turn has only its text"

// twinExceptions are all differences between the requests of the two runtimes. The window of the messages is no exception: the
// defaults differ, and both have twinWindow here.
var twinExceptions = []twinException{
	{field: "Time", reason: "the clock of the store; no provider gets it"},
	{scenario: "a turn that fails after a tool call", from: 4, reason: roundsOfFailedTurns},
	{scenario: "a turn whose tools fail three times", from: 4, reason: roundsOfFailedTurns},
	{scenario: "an empty answer", from: 3, reason: roundsOfFailedTurns},
	{scenario: "an error of a handler", from: 2, reason: roundsOfFailedTurns},
}

// lookupAgentConfig returns the config of an agent with the tool lookup.
func lookupAgentConfig(t *testing.T) agent.Config {
	t.Helper()
	found, err := tool.Func("lookup", "Looks something up.", func(_ context.Context, in struct {
		Query string `json:"query"`
	},
	) (string, error) {
		switch in.Query {
		case "error":
			return "", errors.New("down")
		case "ask":
			return "", tool.AskUser("Where?")
		}
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	return agent.Config{Tools: []tool.Tool{found}}
}

// describeEntries returns a line for each trace entry, without times, names of models and ids.
func describeEntries(entries []event.Event) string {
	var lines strings.Builder
	for _, e := range entries {
		fmt.Fprint(&lines, e.Kind())
		if _, ended := e.Payload.(event.TurnResult); !ended { // a turn that failed has no agent in a mesh
			fmt.Fprint(&lines, " ", e.Author)
		}
		switch p := e.Payload.(type) {
		case event.UserInput:
			fmt.Fprint(&lines, " ", p.Turn, " ", p.Prompt)
		case event.ModelCall:
			fmt.Fprint(&lines, " ", p.Iteration, " ", p.ToolCalls)
		case event.ToolStarted:
			fmt.Fprint(&lines, " ", p.Tool, " ", p.CallID, " ", p.Arguments)
		case event.ToolFinished:
			fmt.Fprint(&lines, " ", p.Tool, " ", p.CallID, " ", p.Status, " ", p.Result)
		case event.TurnResult:
			fmt.Fprint(&lines, " ", p.Turn, " ", p.Reason, " ", p.ErrorType)
		}
		lines.WriteString("\n")
	}
	return lines.String()
}

// takingPictures is the config of an agent with a tool that returns a picture.
func takingPictures(t *testing.T) agent.Config {
	t.Helper()
	camera, err := tool.Func("lookup", "Takes a picture.", func(_ context.Context, in struct {
		Query string `json:"query"`
	},
	) (tool.Result, error) {
		picture := conversation.Attachment{Name: in.Query + ".png", Data: []byte("\x89PNG\r\n\x1a\n" + in.Query)}
		return tool.Result{Text: "taken", Attachments: []conversation.Attachment{picture}}, nil
	})
	require.NoError(t, err)
	return agent.Config{Tools: []tool.Tool{camera}}
}

// askingFirst is the config of an agent whose tool needs an approval.
func askingFirst(t *testing.T) agent.Config {
	t.Helper()
	c := lookupAgentConfig(t)
	c.Handlers = []hook.Handler{hook.BeforeEachTool(func(_ context.Context, call *hook.Call) error {
		call.Wait("May it look this up?", time.Time{})
		return nil
	})}
	return c
}

func lookup(id, query string) conversation.ToolCall {
	return conversation.ToolCall{ID: id, Name: "lookup", Arguments: `{"query":"` + query + `"}`}
}

// looksUp returns a reply with one call for each query.
func looksUp(queries ...string) scripted.Reply {
	var calls []conversation.ToolCall
	for _, q := range queries {
		calls = append(calls, lookup("", q))
	}
	return scripted.Call(calls...)
}

// manyTurns returns the replies of n turns with a round each.
func manyTurns(n int) (replies []scripted.Reply) {
	for i := range n {
		replies = append(replies, looksUp(fmt.Sprint(i)), scripted.Say(fmt.Sprint(i, ".")))
	}
	return replies
}

// newAgent returns the agent of a scenario.
func (s twinScenario) newAgent(t *testing.T, name string, model llm.Model) (*agent.Agent, error) {
	t.Helper()
	c := s.config(t)
	c.Name, c.Description, c.Model = name, "Answers.", model
	if !s.flow {
		return agent.New(c)
	}
	c.Name = name + "-finder"
	finder, err := agent.New(c)
	if err != nil {
		return nil, err
	}
	writer, err := agent.New(agent.Config{Name: name + "-writer", Description: "Writes.", Model: model})
	if err != nil {
		return nil, err
	}
	return flow.Sequence(agent.Config{Name: name, Description: "Answers."}, finder, writer)
}

// In a program and in a mesh, an agent with the same history is asked the same, byte for byte. Its history is exported the
// same, and a Chat Completions server accepts it.
//
// Req: LP-45, CO-69
func TestTwin_SameRequestsInBothRuntimes(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	number := 0
	for title, scenario := range allTwinScenarios() {
		number++
		name := fmt.Sprintf("twin-%d", number)
		t.Run(title, func(t *testing.T) {
			inProgram := scripted.New(scenario.replies...)
			program := openTwinInProgram(t, func() (*agent.Agent, error) { return scenario.newAgent(t, name, inProgram) })
			here := scenario.play(program)
			inMesh := scripted.New(scenario.replies...)
			mesh := openTwinInMesh(t, m, name, func() (*agent.Agent, error) { return scenario.newAgent(t, name, inMesh) })
			there := scenario.play(mesh)
			require.Equal(t, here, there)
			exported := program.export()
			requireSameExport(t, title, exported, mesh.export())
			require.NoError(t, openaitest.CheckMessages([]byte(exported)), exported)
			require.Len(t, inProgram.Requests(), len(scenario.replies), "the whole script is played")
			requireSameRequests(t, title, inProgram.Requests(), inMesh.Requests())
		})
	}
}

// requireSameExport requires that both runtimes export the same, unless requests of the scenario differ, too.
func requireSameExport(t *testing.T, title, here, there string) {
	t.Helper()
	if slices.ContainsFunc(twinExceptions, func(e twinException) bool { return e.scenario == title }) {
		require.NotEqual(t, here, there, "the exports are the same; look whether the exception is needed")
		return
	}
	require.Equal(t, here, there)
}

func requireSameRequests(t *testing.T, title string, here, there []llm.Request) {
	t.Helper()
	require.Len(t, there, len(here))
	for _, e := range twinExceptions {
		if e.scenario == title {
			require.NotEqual(t, requestText(t, here[e.from-1]), requestText(t, there[e.from-1]), "request %d is the same; remove the exception", e.from)
			here = here[:e.from-1]
		}
	}
	for i := range here {
		require.Equal(t, requestText(t, here[i]), requestText(t, there[i]), "request %d", i+1)
		for k, m := range here[i].Messages { // the text has no bytes of files
			require.Equal(t, m.Attachments, there[i].Messages[k].Attachments, "request %d, message %d", i+1, k+1)
		}
	}
}

// requestText returns a request as text, without the exceptions.
func requestText(t *testing.T, r llm.Request) string {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	messages, _ := fields["Messages"].([]any)
	for _, m := range messages {
		for _, e := range twinExceptions {
			delete(m.(map[string]any), e.field)
		}
	}
	text, err = json.MarshalIndent(fields, "", " ")
	require.NoError(t, err)
	return string(text)
}

// programTwin is a session in a program.
type programTwin struct {
	t        *testing.T
	newAgent func() (*agent.Agent, error)
	store    memory.Store
	id       string
	session  *local.Session
}

func openTwinInProgram(t *testing.T, newAgent func() (*agent.Agent, error)) twinSession {
	t.Helper()
	s := &programTwin{t: t, newAgent: newAgent, store: inmem.New(inmem.Config{}), id: uuid.NewString()}
	s.reopen()
	return s
}

func (s *programTwin) run(in local.Input) string {
	done, err := s.session.Execute(s.t.Context(), in, nil)
	if err != nil {
		return string(failure.ModeOf(err))
	}
	return done.Result.Text
}

func (s *programTwin) say(text string) string { return s.sayWithin(0, text) }

func (s *programTwin) sayWithin(iterations int, text string) string {
	return s.run(local.Input{Text: text, MaxIterations: iterations})
}

func (s *programTwin) answer(yes bool) string {
	verdict := execution.Deny
	if yes {
		verdict = execution.Approve
	}
	call := s.session.Pending()[0]
	return s.run(local.Input{Answers: []execution.Answer{{ID: call.ID, Verdict: verdict}}})
}

func (s *programTwin) result(text string) string {
	return s.run(local.Input{Answers: []execution.Answer{{ID: s.session.Pending()[0].ID, Verdict: execution.Succeed, Text: text}}})
}

func (s *programTwin) compact(keep int) {
	_, err := s.session.Compact(s.t.Context(), keep, "")
	require.NoError(s.t, err)
}

func (s *programTwin) clear() { require.NoError(s.t, s.session.Clear(s.t.Context())) }
func (s *programTwin) pause() { require.NoError(s.t, s.session.Pause(s.t.Context())) }

func (s *programTwin) reopen() {
	if s.session != nil {
		require.NoError(s.t, s.session.Close(s.t.Context()))
	}
	a, err := s.newAgent()
	require.NoError(s.t, err)
	s.session, err = local.Open(s.t.Context(), a, local.Config{Store: s.store, ID: s.id, Window: twinWindow})
	require.NoError(s.t, err)
}

func (s *programTwin) export() string {
	var out strings.Builder
	require.NoError(s.t, s.session.ExportOpenAI(s.t.Context(), &out))
	return out.String()
}

// meshTwin is a session in a mesh.
type meshTwin struct {
	t        *testing.T
	mesh     *rig.Mesh
	agent    string
	newAgent func() (*agent.Agent, error)
	workers  int
	id       string
	pending  []*troupev1.PendingCall
}

func openTwinInMesh(t *testing.T, m *rig.Mesh, name string, newAgent func() (*agent.Agent, error)) twinSession {
	t.Helper()
	s := &meshTwin{t: t, mesh: m, agent: name, newAgent: newAgent, id: uuid.NewString()}
	s.reopen()
	return s
}

func (s *meshTwin) run(req *troupev1.OrchestrateRequest) string {
	req.SessionId, req.RequestId = s.id, uuid.NewString()
	result := turnResult(runTurn(s.t, s.mesh, req))
	s.pending = result.GetPending()
	if f := result.GetFailure(); f != nil {
		return string(grpcfailure.FromProto(f).Mode)
	}
	return result.GetText()
}

func (s *meshTwin) say(text string) string { return s.sayWithin(0, text) }

func (s *meshTwin) sayWithin(iterations int, text string) string {
	req := textRequest(text)
	req.Target, req.MaxIterations = s.agent, int32(iterations)
	return s.run(req)
}

func (s *meshTwin) answer(yes bool) string {
	verdict := verdictDenied
	if yes {
		verdict = verdictApproved
	}
	return s.run(verdictRequest(s.id, s.pending[0].GetId(), verdict, ""))
}

func (s *meshTwin) result(text string) string {
	return s.run(verdictRequest(s.id, s.pending[0].GetId(), troupev1.CallVerdict_CALL_VERDICT_SUCCEED, text))
}

func (s *meshTwin) compact(keep int) {
	_, err := s.mesh.Sessions.CompactSession(s.t.Context(), &troupev1.CompactSessionRequest{SessionId: s.id, KeepRecent: int32(keep)})
	require.NoError(s.t, err)
}

func (s *meshTwin) clear() {
	_, err := s.mesh.Sessions.ClearSession(s.t.Context(), &troupev1.ClearSessionRequest{SessionId: s.id})
	require.NoError(s.t, err)
}

func (s *meshTwin) pause() {
	_, err := s.mesh.Sessions.PauseSession(s.t.Context(), &troupev1.PauseSessionRequest{SessionId: s.id})
	require.NoError(s.t, err)
}

func (s *meshTwin) reopen() {
	if s.workers > 0 {
		s.mesh.Stop(s.worker())
	}
	s.workers++
	s.mesh.HostWorker(s.worker(), rig.Program{
		Instance: string(s.worker()), Agent: s.agent, DrainTimeout: time.Second, NewAgent: s.newAgent,
	})
	s.mesh.Await("the agent of the scenario is ready", func() bool { return s.mesh.IsReady(s.worker()) })
}

// export runs the command that a user runs.
func (s *meshTwin) export() string {
	folder, err := gobuild.Build("", "github.com/troupe-dev/troupe/cmd/troupe")
	require.NoError(s.t, err)
	command := exec.CommandContext(s.t.Context(), filepath.Join(folder, "troupe"),
		"get", "session", s.id, "-o", "openai", "--agent", s.agent, "--addr", s.mesh.Address(rig.Orchestrator))
	var problems strings.Builder
	command.Stderr = &problems
	out, err := command.Output()
	require.NoError(s.t, err, problems.String())
	return string(out)
}

// worker returns the worker that runs now.
func (s *meshTwin) worker() rig.Part { return rig.Part(fmt.Sprintf("%s-%d", s.agent, s.workers)) }
