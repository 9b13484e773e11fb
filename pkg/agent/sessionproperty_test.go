package agent_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// told is a model that does what the user says: "tool", "fail", "toolfail" or "ask", and
// echoes anything else. What it says follows from the conversation alone.
type told struct{}

func (told) Name() string { return "test/told" }

func (told) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	text, query, fails := speak(req.Messages)
	reply := scripted.Say(text)
	if query != "" {
		reply.ToolCalls = look(query).ToolCalls
	}
	if fails {
		reply = scripted.Fail(failure.New(failure.ResourceAPI, "test", "the model is down"))
	}
	return scripted.New(reply).Generate(ctx, req)
}

// speak is what the model says: a text, what it wants looked up, or that it fails.
func speak(messages []conversation.Message) (text, query string, fails bool) {
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
	case asked == "tool" || asked == "toolfail" || asked == "ask":
		return "I look.", asked, false
	case asked == "fail":
		return "", "", true
	default:
		return "You say " + last.Text, "", false
	}
}

func toldAgent(t *testing.T) *agent.Agent {
	t.Helper()
	found, err := tool.Func("lookup", "Looks.", func(_ context.Context, in topic) (string, error) {
		if in.Query == "ask" {
			return "", tool.AskUser("Which one?")
		}
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	return build(t, agent.Config{Model: told{}, Tools: []tool.Tool{found}})
}

// twin is what a session must be, simple enough to be believed.
type twin struct {
	noAutoSave  bool
	state       session.State
	storedState session.State // empty: it is not stored
	all, saved  []conversation.Message
	turns       int
	savedTurns  int
}

// turn is what a turn adds, and the state to which it leads.
func (w *twin) turn(in agent.Input, breaks bool) {
	from := len(w.all)
	if !in.Continue {
		w.all = append(w.all, conversation.User(in.Text))
		from++
	}
	w.turns++
	w.state = session.Ready
	for !breaks {
		text, query, fails := speak(w.all)
		if fails {
			w.state = session.Failed
			for i := from; i < len(w.all); i++ {
				w.all[i].Partial = true
			}
			break
		}
		w.all = append(w.all, conversation.Assistant("research", text))
		if query == "" {
			break
		}
		result := "found " + query
		if query == "ask" {
			result = "The user was asked: Which one?"
		}
		w.all[len(w.all)-1].ToolCalls = look(query).ToolCalls
		w.all = append(w.all, conversation.Message{Role: conversation.RoleTool, Text: result})
		if query == "ask" {
			w.all = append(w.all, conversation.Assistant("research", "Which one?"))
			w.state = session.InputRequired
			break
		}
	}
	if !w.noAutoSave {
		w.store(w.state)
	}
}

// store notes that all is saved, and leaves the given state.
func (w *twin) store(state session.State) {
	w.saved, w.savedTurns, w.storedState = slices.Clone(w.all), w.turns, state
}

// save is what Save leaves; turns that are written leave the state of the last.
func (w *twin) save() {
	switch {
	case w.savedTurns < w.turns:
		w.store(w.state)
	case w.storedState == "":
		w.storedState = session.Created
	}
}

// loaded is the state after a start.
func (w *twin) loaded() {
	w.all, w.turns, w.state = slices.Clone(w.saved), w.savedTurns, session.Ready
	if w.storedState == session.Failed || w.storedState == session.InputRequired {
		w.state = w.storedState
	}
	if !w.noAutoSave {
		switch w.storedState {
		case session.Paused, session.Closed:
			w.storedState = session.Ready
		case "":
			w.storedState = session.Created
		default:
		}
	}
}

// converse does random things with a session and its twin, and compares them after each.
func converse(t *testing.T, store memory.Store, noAutoSave bool, seed uint64, steps int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	a := toldAgent(t)
	c := agent.SessionConfig{Store: store, NoAutoSave: noAutoSave, Window: memory.MaxWindow, MaxMessages: 10_000}
	s, err := agent.Open(t.Context(), a, c)
	require.NoError(t, err)
	c.ID = s.ID()
	w := &twin{noAutoSave: noAutoSave}
	w.loaded()
	var story []string
	for step := range steps {
		closed := w.state == session.Closed
		var op string
		err = nil
		switch n := random.IntN(20); {
		case n < 9: // a turn
			in := agent.Input{Text: fmt.Sprintf("%s %d", []string{"say", "tool", "fail", "toolfail", "ask"}[random.IntN(5)], step)}
			if random.IntN(4) == 0 {
				in = agent.Input{Continue: true}
			}
			breaks := random.IntN(6) == 0
			op = fmt.Sprintf("turn %+v, broken off: %v", in, breaks)
			var last event.TurnResult
			for e, err := range s.Turn(t.Context(), in) {
				if err != nil {
					require.Equal(t, failure.ResourceAPI, failure.ModeOf(err), "%s: %v", op, err)
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
			w.turn(in, breaks)
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
				w.loaded()
			}
			closed = false
		case n < 17: // in another process; what was not saved is gone
			op = "open"
			s, err = agent.Open(t.Context(), a, c)
			w.loaded()
			closed = false
		case n < 18:
			op, err = "clear", s.Clear(t.Context())
			if !closed {
				w.all, w.saved, w.turns = nil, nil, w.savedTurns
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
		w.agrees(t, s, store, where)
	}
}

func (w *twin) agrees(t *testing.T, s *agent.Session, store memory.Store, where string) {
	t.Helper()
	require.Equal(t, w.state, s.State(), where)
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
	require.Equal(t, spoken(w.all), spoken(messages), where)
	require.Equal(t, w.turns, s.Info().Turns, where)
	require.EqualValues(t, len(w.all), s.Info().Messages, where)
	ref := session.Ref{Tenant: agent.DefaultTenant, Session: s.ID()}
	info, err := failure.Retry(t.Context(), func(ctx context.Context) (session.Session, error) { return store.GetSession(ctx, ref) })
	if w.storedState == "" {
		require.Equal(t, failure.NotFound, failure.ModeOf(err), where)
		return
	}
	require.NoError(t, err, where)
	require.Equal(t, w.storedState, info.State, where)
	require.Equal(t, w.savedTurns, info.Turns, where)
	require.EqualValues(t, len(w.saved), info.Messages, where)
}

// Req: LP-6, LP-7a, LP-8, LP-9, LP-10, LP-11, LP-12, LP-17, LP-23
func TestSession_IsWhatItsTwinIs(t *testing.T) {
	for _, noAutoSave := range []bool{false, true} {
		for seed := range uint64(100) {
			converse(t, inmem.New(inmem.Config{}), noAutoSave, seed, 60)
		}
	}
}

func TestSession_IsWhatItsTwinIsOverTheMemoryService(t *testing.T) {
	store := memoryService(t)
	for _, noAutoSave := range []bool{false, true} {
		for seed := range uint64(5) {
			converse(t, store, noAutoSave, 1000+seed, 60)
		}
	}
}

// A store of which every fifth call is lost on one of its ways changes nothing: every write
// is repeated, and happens once.
func TestSession_IsWhatItsTwinIsOverABadLine(t *testing.T) {
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
				converse(t, &line{inmem.New(inmem.Config{}), lost}, noAutoSave, seed, 40)
			})
		}
	}
}
