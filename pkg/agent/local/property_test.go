package local_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// obedientModel is a model that does what words in the user's text say: "tool", "fail", "toolfail", "ask" and
// "allow". It repeats any other text. Its reply depends only on the conversation.
type obedientModel struct{}

func (obedientModel) Name() string { return "test/obedient" }

func (obedientModel) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	text, query, fails := obedientReply(req.Messages)
	reply := scripted.Say(text)
	if query != "" {
		reply.ToolCalls = lookupReply(query).ToolCalls
	}
	if fails {
		reply = scripted.Fail(failure.New(failure.ResourceAPI, "test", "the model is down"))
	}
	return scripted.New(reply).Generate(ctx, req)
}

// obedientReply returns the reply of the model: a text, a tool call or an error.
func obedientReply(messages []conversation.Message) (text, query string, fails bool) {
	if len(messages) == 0 {
		return "Welcome.", "", false
	}
	last := messages[len(messages)-1]
	asked := ""
	for _, m := range messages {
		if m.Role == conversation.RoleUser {
			asked, _, _ = strings.Cut(m.Text, " ")
		}
	}
	switch {
	case last.Role == conversation.RoleTool && asked == "toolfail":
		return "", "", true
	case last.Role == conversation.RoleTool:
		return "I found it.", "", false
	case last.Role == conversation.RoleAssistant:
		return "There is more.", "", false
	case asked == "tool" || asked == "toolfail" || asked == "ask" || asked == "allow":
		return "I look.", asked, false
	case asked == "fail":
		return "", "", true
	default:
		return "You say " + last.Text, "", false
	}
}

func obedientAgent(t *testing.T) *agent.Agent {
	t.Helper()
	found, err := tool.Func("lookup", "Looks.", func(_ context.Context, in topic) (string, error) {
		if in.Query == "ask" {
			return "", tool.AskUser("Which one?")
		}
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	guard := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		if strings.Contains(c.Arguments, "allow") {
			c.Wait("", time.Time{})
		}
		return nil
	})
	return build(t, agent.Config{Model: obedientModel{}, Tools: []tool.Tool{found}, Handlers: []hook.Handler{guard}})
}

// expectedSession is the expected state of a session. It is simple enough to be obviously correct.
type expectedSession struct {
	noAutoSave  bool
	state       session.State
	storedState session.State // (empty when it is not stored)
	all, saved  []conversation.Message
	turns       int
	savedTurns  int
	isWaiting   bool // for an answer
}

// addAnswer adds the messages of a turn with an answer.
func (e *expectedSession) addAnswer(verdict execution.Verdict, breaks bool) {
	e.turns++
	e.isWaiting, e.state = false, session.Ready
	said := conversation.Assistant("research", "I look.")
	if breaks { // the turn before said it
		said.Partial = true
		e.all = append(e.all, said)
	} else {
		said.ToolCalls = lookupReply("allow").ToolCalls
		result := "found allow"
		if verdict == execution.Deny {
			result = notRun
		}
		e.all = append(e.all, said, conversation.Message{Role: conversation.RoleTool, Text: result}, conversation.Assistant("research", "I found it."))
	}
	e.store(e.state)
}

// notRun is the beginning of every result of a tool that did not run.
const notRun = "Not run"

// withoutReasons returns a short form of a conversation, without the reasons why tools did not run.
func withoutReasons(messages []conversation.Message) []string {
	all := transcript(messages)
	for i, text := range all {
		if strings.HasPrefix(text, "tool: "+notRun) {
			all[i] = "tool: " + notRun
		}
	}
	return all
}

// rejects reports whether a turn with the input is rejected.
func (e *expectedSession) rejects(in local.Input) bool {
	return in.Continue && e.isWaiting || len(in.Answers) > 0 && (!e.isWaiting || e.noAutoSave)
}

// addTurn adds the messages of a turn and sets the resulting state.
func (e *expectedSession) addTurn(in local.Input, breaks bool) {
	if e.rejects(in) {
		return
	}
	if len(in.Answers) > 0 {
		e.addAnswer(in.Answers[0].Verdict, breaks)
		return
	}
	e.isWaiting = false
	from := len(e.all)
	if !in.Continue {
		e.all = append(e.all, conversation.User(in.Text))
		from++
	}
	e.turns++
	e.state = session.Ready
	for !breaks {
		text, query, fails := obedientReply(e.all)
		if fails {
			e.state = session.Failed
			for i := from; i < len(e.all); i++ {
				e.all[i].Partial = true
			}
			break
		}
		if query == "allow" && !e.noAutoSave {
			e.isWaiting = true
			e.all = append(e.all, conversation.Assistant("research", "lookup waits for an approval."))
			e.state = session.InputRequired
			break
		}
		e.all = append(e.all, conversation.Assistant("research", text))
		if query == "" {
			break
		}
		result := "found " + query
		if query == "allow" {
			result = notRun
		}
		if query == "ask" {
			result = "The user was asked: Which one?"
		}
		e.all[len(e.all)-1].ToolCalls = lookupReply(query).ToolCalls
		e.all = append(e.all, conversation.Message{Role: conversation.RoleTool, Text: result})
		if query == "ask" {
			e.all = append(e.all, conversation.Assistant("research", "Which one?"))
			e.state = session.InputRequired
			break
		}
	}
	if !e.noAutoSave {
		e.store(e.state)
	}
}

// store marks all messages as saved, with the given state.
func (e *expectedSession) store(state session.State) {
	e.saved, e.savedTurns, e.storedState = slices.Clone(e.all), e.turns, state
}

// save does what Session.Save does: the state of the last turn is stored.
func (e *expectedSession) save() {
	switch {
	case e.savedTurns < e.turns:
		e.store(e.state)
	case e.storedState == "":
		e.storedState = session.Created
	}
}

// start sets the state that the session has after Start.
func (e *expectedSession) start() {
	e.all, e.turns, e.state = slices.Clone(e.saved), e.savedTurns, session.Ready
	if e.storedState == session.Failed || e.storedState == session.InputRequired {
		e.state = e.storedState
	}
	if e.isWaiting {
		e.state = session.InputRequired
	}
	if !e.noAutoSave {
		switch e.storedState {
		case session.Paused, session.Closed:
			e.storedState = session.Ready
		case "":
			e.storedState = session.Created
		default:
		}
	}
}

// applyRandomOperations applies random operations to a session and to its expected state, and compares the two
// after each operation.
func applyRandomOperations(t *testing.T, store memory.Store, noAutoSave bool, seed uint64, steps int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	a := obedientAgent(t)
	c := local.Config{Store: store, NoAutoSave: noAutoSave, Window: memory.MaxWindow, MaxMessages: 10_000}
	s, err := local.Open(t.Context(), a, c)
	require.NoError(t, err)
	c.ID = s.ID()
	w := &expectedSession{noAutoSave: noAutoSave}
	w.start()
	var story []string
	for step := range steps {
		closed := w.state == session.Closed
		var op string
		err = nil
		switch n := random.IntN(20); {
		case n < 9: // a turn
			in := local.Input{Text: fmt.Sprintf("%s %d", []string{"say", "tool", "fail", "toolfail", "ask", "allow"}[random.IntN(6)], step)}
			switch random.IntN(4) {
			case 0:
				in = local.Input{Continue: true}
			case 1:
				p := execution.Pending{ID: "1-1-2"}
				if all := s.Pending(); len(all) > 0 {
					p = all[0]
				}
				in = answerTo(p, []execution.Verdict{execution.Approve, execution.Deny}[random.IntN(2)], "")
			}
			breaks := random.IntN(6) == 0
			op = fmt.Sprintf("turn %+v, broken off: %v", in, breaks)
			var last event.TurnResult
			for e, err := range s.Turn(t.Context(), in) {
				if err != nil {
					want := failure.ResourceAPI
					if w.rejects(in) {
						want = failure.UserInvalidInput
					}
					require.Equal(t, want, failure.ModeOf(err), "%s: %v", op, err)
				}
				if done, ok := e.Payload.(event.TurnResult); ok {
					last = done
				} else if breaks && err == nil {
					break
				}
			}
			if closed {
				require.Equal(t, "session_closed", last.ErrorType)
				break
			}
			w.addTurn(in, breaks)
		case n < 11:
			op, err = "pause", s.Pause(t.Context())
			if !closed {
				w.save()
				w.state, w.storedState = session.Paused, session.Paused
			}
		case n < 13:
			op, err = "close", s.Close(t.Context())
			if !closed {
				w.save()
				w.state, w.storedState = session.Closed, session.Closed
			}
			closed = false // it may be repeated
		case n < 15:
			op, err = "start", s.Start(t.Context())
			if closed {
				w.start()
			}
			closed = false
		case n < 17: // in another process, where unsaved turns are lost
			op = "open"
			s, err = local.Open(t.Context(), a, c)
			w.start()
			closed = false
		case n < 18:
			op, err = "clear", s.Clear(t.Context())
			if !closed {
				w.all, w.saved, w.turns, w.isWaiting = nil, nil, w.savedTurns, false
			}
		default:
			op, err = "save", s.Save(t.Context())
			if !closed {
				w.save()
			}
		}
		story = append(story, op)
		where := fmt.Sprintf("seed %d:\n%s", seed, strings.Join(story, "\n"))
		if closed && !strings.HasPrefix(op, "turn") {
			require.Equal(t, failure.SessionClosed, failure.ModeOf(err), where)
		} else {
			require.NoError(t, err, where)
		}
		w.requireEqual(t, s, store, where)
	}
}

func (e *expectedSession) requireEqual(t *testing.T, s *local.Session, store memory.Store, where string) {
	t.Helper()
	require.Equal(t, e.state, s.State(), where)
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
	require.Equal(t, withoutReasons(e.all), withoutReasons(messages), where)
	require.Equal(t, e.isWaiting, len(s.Pending()) > 0, where)
	require.Equal(t, e.turns, s.Info().Turns, where)
	require.EqualValues(t, countSaid(e.all), s.Info().Size.Messages, where)
	ref := session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}
	info, err := retry.Do(t.Context(), func(ctx context.Context) (session.Session, error) { return store.GetSession(ctx, ref) })
	if e.storedState == "" {
		require.Equal(t, failure.NotFound, failure.ModeOf(err), where)
		return
	}
	require.NoError(t, err, where)
	require.Equal(t, e.storedState, info.State, where)
	require.Equal(t, e.savedTurns, info.Turns, where)
	require.EqualValues(t, countSaid(e.saved), info.Size.Messages, where)
}

// countSaid returns how many messages belong to the conversation, and not to tool rounds.
func countSaid(messages []conversation.Message) (n int) {
	for _, m := range messages {
		if m.Role != conversation.RoleTool && len(m.ToolCalls) == 0 {
			n++
		}
	}
	return n
}

// Req: LP-6, LP-7a, LP-8, LP-9, LP-10, LP-11, LP-12, LP-17, LP-23, LP-32
func TestSession_MatchesTheExpectedSession(t *testing.T) {
	for _, noAutoSave := range []bool{false, true} {
		for seed := range uint64(100) {
			applyRandomOperations(t, inmem.New(inmem.Config{}), noAutoSave, seed, 60)
		}
	}
}

func TestSession_MatchesTheExpectedSessionOverTheMemoryService(t *testing.T) {
	store := memoryService(t)
	for _, noAutoSave := range []bool{false, true} {
		for seed := range uint64(5) {
			applyRandomOperations(t, store, noAutoSave, 1000+seed, 60)
		}
	}
}

// The result is the same if every fifth call of the store, or its response, is lost. Each write is retried and
// takes effect once.
func TestSession_MatchesTheExpectedSessionOverABadConnection(t *testing.T) {
	for _, noAutoSave := range []bool{false, true} {
		for seed := range uint64(30) {
			synctest.Test(t, func(t *testing.T) {
				random := make(chan *rand.Rand, 1) // one at a time
				random <- rand.New(rand.NewPCG(seed, 1))
				lost := func(string) (call, answer bool) {
					r := <-random
					defer func() { random <- r }()
					n := r.IntN(10)
					return n == 0, n == 1
				}
				applyRandomOperations(t, &lossyStore{inmem.New(inmem.Config{}), lost}, noAutoSave, seed, 40)
			})
		}
	}
}
