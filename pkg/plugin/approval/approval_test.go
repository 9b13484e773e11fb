package approval_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// approvalTest holds an agent with three tools, and records which of them ran.
type approvalTest struct {
	model    *scripted.Model
	agent    *agent.Agent
	executed []string
}

func (a *approvalTest) open(c approval.Config, replies ...scripted.Reply) error {
	plugin, err := approval.New(c)
	if err != nil {
		return err
	}
	var tools []tool.Tool
	for name, effect := range map[string]execution.Effect{"look": execution.Read, "save": execution.Idempotent, "send": ""} {
		made, err := tool.Func(name, "Does "+name+".", func(context.Context, struct{}) (string, error) {
			a.executed = append(a.executed, name)
			return "did " + name, nil
		})
		if err != nil {
			return err
		}
		if effect != "" {
			made = tool.WithEffect(effect, made)
		}
		tools = append(tools, made)
	}
	a.model = scripted.New(replies...)
	a.agent, err = agent.New(agent.Config{Name: "clerk", Model: a.model, Tools: tools, Plugins: []hook.Plugin{plugin}})
	return err
}

func newApprovalTest(t *testing.T, c approval.Config, replies ...scripted.Reply) *approvalTest {
	t.Helper()
	d := &approvalTest{}
	require.NoError(t, d.open(c, replies...))
	return d
}

// turnOutcome holds the outcome of a turn.
type turnOutcome struct {
	answer           string
	reason           event.Reason
	observationCount int
	calls            []event.ToolFinished
	results          []string // results of the calls, as the model reads them
	warnings         []string
}

func (a *approvalTest) runTurn(ctx context.Context, inv agent.Invocation) (out turnOutcome, err error) {
	inv.Step.History = []conversation.Message{conversation.User("go")}
	done, err := a.agent.Execute(ctx, inv, func(e event.Event) error {
		switch p := e.Payload.(type) {
		case event.ToolFinished:
			out.calls = append(out.calls, p)
		case event.Warning:
			out.warnings = append(out.warnings, p.Reason)
		case event.MessageAppended:
			if p.Message.Role == conversation.RoleTool {
				out.results = append(out.results, p.Message.Text)
			}
		}
		return nil
	})
	out.answer, out.reason, out.observationCount = done.Result.Text, done.Reason, len(done.Result.Observations)
	return out, err
}

func newInvocation(id string) agent.Invocation {
	return agent.Invocation{Step: execution.Step{SessionID: id, TurnID: "t"}}
}

func toolRound(names ...string) scripted.Reply {
	var r scripted.Reply
	for i, name := range names {
		r.ToolCalls = append(r.ToolCalls, conversation.ToolCall{ID: fmt.Sprint(i + 1), Name: name, Arguments: "{}"})
	}
	return r
}

// fixedAsker always gives the same answer, and records the questions.
type fixedAsker struct {
	answer    approval.Answer
	err       error
	questions []approval.Question
}

func (f *fixedAsker) Ask(_ context.Context, q approval.Question) (approval.Answer, error) {
	f.questions = append(f.questions, q)
	return f.answer, f.err
}

func (f *fixedAsker) askedTools() (all []string) {
	for _, q := range f.questions {
		all = append(all, q.Tool)
	}
	return all
}

// Req: CO-7, CO-64
func TestApproval_AsksForEachToolThatMayDoMoreThanRead(t *testing.T) {
	for name, tc := range map[string]struct {
		config approval.Config
		want   []string
	}{
		"by their effect": {want: []string{"save", "send"}},
		"never":           {approval.Config{Never: []string{"send"}}, []string{"save"}},
		"always":          {approval.Config{Always: []string{"look"}}, []string{"look", "save", "send"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fixedAsker{answer: approval.Answer{Verdict: approval.Allow}}
			tc.config.Asker = p
			d := newApprovalTest(t, tc.config, toolRound("look", "save", "send"), scripted.Say("done"))
			out, err := d.runTurn(t.Context(), newInvocation("s"))
			require.NoError(t, err)
			require.Equal(t, "done", out.answer)
			require.Equal(t, tc.want, p.askedTools())
			require.Equal(t, []string{"look", "save", "send"}, d.executed)
		})
	}
}

// Req: CO-17, CO-64
func TestApproval_ShowsTheCallToDecideAbout(t *testing.T) {
	p := &fixedAsker{answer: approval.Answer{Verdict: approval.Allow}}
	d := newApprovalTest(t, approval.Config{Asker: p}, toolRound("look", "save", "look", "send"), scripted.Say("done"))
	_, err := d.runTurn(t.Context(), newInvocation("s"))
	require.NoError(t, err)
	got := p.questions[0]
	require.Equal(t, "s", got.Turn.Session)
	got.Turn = hook.Info{}
	require.Empty(t, cmp.Diff(approval.Question{
		CallID: "2", Tool: "save", Description: "Does save.", Arguments: "{}", Risk: execution.Idempotent,
		Remaining: toolRound("look", "save", "look", "send").ToolCalls[2:],
	}, got))
	require.Equal(t, execution.AtMostOnce, p.questions[1].Risk, "the tool declares no smaller risk")
	require.Empty(t, p.questions[1].Remaining)
}

// Req: CO-64
func TestApproval_SkipsOrStops(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  approval.Answer
		results []string
		want    string
		reason  event.Reason
		did     []string
	}{
		"skip": {
			approval.Answer{Verdict: approval.Skip},
			[]string{"did look", "Not run: the user does not allow send.", "did look"},
			"done", event.Natural,
			[]string{"look", "look"},
		},
		"skip for a reason": {
			approval.Answer{Verdict: approval.Skip, Reason: "write it first"},
			[]string{"did look", "Not run: the user does not allow send: write it first", "did look"},
			"done", event.Natural,
			[]string{"look", "look"},
		},
		"stop": {
			approval.Answer{Verdict: approval.Stop, Reason: "no mail today", Scope: approval.Session},
			[]string{"did look", "Not run: the turn was stopped before it.", "Not run: the turn was stopped before it."},
			"The turn was stopped: the user does not allow send: no mail today", event.Stopped,
			[]string{"look"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newApprovalTest(t, approval.Config{Asker: &fixedAsker{answer: tc.answer}}, toolRound("look", "send", "look"), scripted.Say("done"))
			out, err := d.runTurn(t.Context(), newInvocation("s"))
			require.NoError(t, err)
			require.Equal(t, tc.want, out.answer)
			require.Equal(t, tc.reason, out.reason)
			require.Equal(t, tc.results, out.results)
			require.Equal(t, tc.did, d.executed)
			require.Equal(t, len(tc.did), out.observationCount, "what did not run was not observed")
		})
	}
}

// After a denial the other tools may still run. The denial does not count as a failure of a tool.
func TestApproval_CountsASkipAsNoFailure(t *testing.T) {
	d := newApprovalTest(t, approval.Config{Asker: &fixedAsker{answer: approval.Answer{Verdict: approval.Skip}}},
		toolRound("send", "send"), toolRound("send", "send"), scripted.Say("done"))
	out, err := d.runTurn(t.Context(), newInvocation("s"))
	require.NoError(t, err)
	require.Equal(t, "done", out.answer)
	for _, c := range out.calls {
		require.Equal(t, event.ToolInterrupted, c.Status)
	}
}

// Req: CO-64
func TestApproval_RejectsWithoutADecision(t *testing.T) {
	for name, asker := range map[string]approval.Asker{
		"no person":    nil,
		"an error":     &fixedAsker{answer: approval.Answer{Verdict: approval.Allow}, err: errors.New("gone")},
		"no answer":    &fixedAsker{},
		"what is that": &fixedAsker{answer: approval.Answer{Verdict: "yes"}},
		"a panic":      approval.AskerFunc(func(context.Context, approval.Question) (approval.Answer, error) { panic("oh") }),
	} {
		t.Run(name, func(t *testing.T) {
			d := newApprovalTest(t, approval.Config{Asker: asker}, toolRound("look", "send"), scripted.Say("done"))
			out, err := d.runTurn(t.Context(), newInvocation("s"))
			require.NoError(t, err)
			require.Equal(t, []string{"look"}, d.executed)
			require.Equal(t, event.ToolError, out.calls[1].Status)
			require.NotContains(t, out.results[1], "oh")
			if name != "a panic" {
				require.Equal(t, "Not run: send needs an approval, and no person can be asked.", out.results[1])
				require.Equal(t, string(failure.UserPermission), out.calls[1].ErrorType)
				require.Equal(t, []string{approval.ReasonNotPossible}, out.warnings)
			}
		})
	}
}

// Req: CO-64
func TestApproval_RemembersForTheSession(t *testing.T) {
	for verdict, did := range map[approval.Verdict]int{approval.Allow: 4, approval.Skip: 0} {
		t.Run(string(verdict), func(t *testing.T) {
			p := &fixedAsker{answer: approval.Answer{Verdict: verdict, Scope: approval.Session}}
			d := newApprovalTest(t, approval.Config{Asker: p}, toolRound("send", "send"), scripted.Say("done"), toolRound("send"), scripted.Say("done"),
				toolRound("send"), scripted.Say("done"))
			for i, want := range []int{1, 1, 2} { // the third turn is of another session
				_, err := d.runTurn(t.Context(), newInvocation(map[bool]string{true: "a", false: "b"}[i < 2]))
				require.NoError(t, err)
				require.Len(t, p.questions, want)
			}
			require.Len(t, d.executed, did)
		})
	}
}

func TestApproval_DoesNotRememberASingleDecision(t *testing.T) {
	for name, inv := range map[string]agent.Invocation{"once": newInvocation("s"), "no session": newInvocation("")} {
		t.Run(name, func(t *testing.T) {
			p := &fixedAsker{answer: approval.Answer{Verdict: approval.Allow}}
			if name != "once" {
				p.answer.Scope = approval.Session
			}
			d := newApprovalTest(t, approval.Config{Asker: p}, toolRound("send", "send"), scripted.Say("done"))
			_, err := d.runTurn(t.Context(), inv)
			require.NoError(t, err)
			require.Len(t, p.questions, 2)
		})
	}
}

// attemptJournal is the journal of an attempt whose worker was lost.
type attemptJournal struct{ entries []execution.Entry }

func (j *attemptJournal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	for _, e := range j.entries {
		if e.Number == number && e.Phase == phase {
			return e, true
		}
	}
	return execution.Entry{}, false
}
func (j *attemptJournal) Record(e execution.Entry)   { j.entries = append(j.entries, e) }
func (j *attemptJournal) Sync(context.Context) error { return nil }

// A tool that ran or may have run on a lost worker does not run again, so no person is asked about it.
func TestApproval_DoesNotAskAboutFinishedCalls(t *testing.T) {
	kept := &attemptJournal{}
	first := newApprovalTest(t, approval.Config{Asker: &fixedAsker{answer: approval.Answer{Verdict: approval.Allow}}}, toolRound("send"), scripted.Say("done"))
	inv := newInvocation("s")
	inv.Step.Journal = kept
	_, err := first.runTurn(t.Context(), inv)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		entries int
		status  event.ToolStatus
	}{
		"it ran":           {3, event.ToolSuccess},
		"it was cut short": {2, event.ToolUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fixedAsker{answer: approval.Answer{Verdict: approval.Skip}}
			second := newApprovalTest(t, approval.Config{Asker: p}, scripted.Say("done"))
			inv.Step.Attempt, inv.Step.Journal = 2, &attemptJournal{entries: kept.entries[:tc.entries:tc.entries]}
			out, err := second.runTurn(t.Context(), inv)
			require.NoError(t, err)
			require.Empty(t, p.questions)
			require.Empty(t, second.executed)
			require.Equal(t, tc.status, out.calls[0].Status)
		})
	}
}

// Req: CO-63
func TestApproval_DoesNotDelayAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		forever := approval.AskerFunc(func(ctx context.Context, _ approval.Question) (approval.Answer, error) {
			cancel()
			<-ctx.Done()
			return approval.Answer{Verdict: approval.Allow}, ctx.Err()
		})
		d := newApprovalTest(t, approval.Config{Asker: forever}, toolRound("send", "look"))
		inv := newInvocation("s")
		inv.Stop = stop
		out, err := d.runTurn(t.Context(), inv)
		require.NoError(t, err)
		require.Equal(t, event.Stopped, out.reason)
		require.Empty(t, d.executed)
		require.Empty(t, out.calls)
		require.Equal(t, []string{"Not run: the turn was stopped before it.", "Not run: the turn was stopped before it."}, out.results)
	})
}

func TestNew_ReportsInvalidSettings(t *testing.T) {
	for want, c := range map[string]approval.Config{
		`Always[1] is "send", which is in Never as well`:                  {Always: []string{"look", "send"}, Never: []string{"send"}},
		`Always[0]: agent clerk has no tool "sent"; did you mean "send"?`: {Always: []string{"sent"}},
		`Never[1]: agent clerk has no tool "x"; there are `:               {Never: []string{"send", "x"}},
	} {
		err := (&approvalTest{}).open(c)
		require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
		require.ErrorContains(t, err, want)
	}
}

// A person at a terminal allows the agent to save for the whole session, and does not allow it to send.
func Example() {
	terminal := approval.AskerFunc(func(_ context.Context, q approval.Question) (approval.Answer, error) {
		fmt.Fprintf(os.Stdout, "%s %s, with %d more? ", q.Tool, q.Arguments, len(q.Remaining))
		if q.Tool == "save" {
			fmt.Fprintln(os.Stdout, "yes, from now on")
			return approval.Answer{Verdict: approval.Allow, Scope: approval.Session}, nil
		}
		fmt.Fprintln(os.Stdout, "no")
		return approval.Answer{Verdict: approval.Skip, Reason: "I will do it myself"}, nil
	})
	d := &approvalTest{}
	if err := d.open(approval.Config{Asker: terminal}, toolRound("save", "save", "send"), scripted.Say("Saved, not sent.")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	out, err := d.runTurn(context.Background(), newInvocation("s"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, strings.Join(out.results, "\n"))
	fmt.Fprintln(os.Stdout, out.answer)
	// Output:
	// save {}, with 2 more? yes, from now on
	// send {}, with 0 more? no
	// did save
	// did save
	// Not run: the user does not allow send: I will do it myself
	// Saved, not sent.
}
