package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tenant and User are the tenant and the user of all test sessions.
const (
	Tenant = "test"
	User   = "tester"
)

// Session is a conversation with one agent. A store of package memory/inmem holds its messages, its state, its
// artifacts and its pending calls; a test may read it. A Session belongs to the goroutine of the test.
type Session struct {
	Store *inmem.Store
	Ref   session.Ref

	t            T
	agent        *agent.Agent
	sessionCount *int // number of sessions in the store
	turns        int
	updateCount  int
}

// NewSession begins a session in a new store. It starts the agent, and closes the agent when the test ends. Each
// parallel test needs an agent of its own.
func NewSession(t T, a *agent.Agent) *Session {
	t.Helper()
	if err := a.Start(t.Context()); err != nil {
		t.Fatalf("start agent %s: %v", a.Name(), err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Fatalf("close agent %s: %v", a.Name(), err)
		}
	})
	s := &Session{Store: inmem.New(inmem.Config{}), t: t, agent: a, sessionCount: new(int)}
	return s.Another()
}

// Another begins a second session of the same user. Both sessions share the state under user: and app:. Searches
// in the new session find the messages of this one.
func (s *Session) Another() *Session {
	*s.sessionCount++
	return &Session{
		Store: s.Store, Ref: session.Ref{Tenant: Tenant, Session: fmt.Sprintf("session-%d", *s.sessionCount)},
		t: s.t, agent: s.agent, sessionCount: s.sessionCount,
	}
}

// Set changes the session's state before a turn. A key without a prefix belongs to the session.
func (s *Session) Set(key string, value any) {
	s.t.Helper()
	s.updateCount++
	text, err := json.Marshal(value)
	if err == nil {
		_, err = s.Store.UpdateSession(s.t.Context(), memory.SessionUpdate{Ref: s.Ref, Create: true, User: User})
	}
	if err == nil {
		_, err = s.Store.UpdateState(s.t.Context(), memory.StateUpdate{
			Ref: s.Ref, RequestID: fmt.Sprint("set-", s.updateCount), Delta: map[string]json.RawMessage{key: text},
		})
	}
	if err != nil {
		s.t.Fatalf("set %s: %v", key, err)
	}
}

// Say runs a turn with the user's next input. With an empty text the user says nothing and the agent continues
// where it stopped (LP-8). A non-empty text abandons pending calls. The test fails if the turn fails.
func (s *Session) Say(text string) Turn {
	s.t.Helper()
	return s.mustSucceed(s.Try(text))
}

// Try does the same as Say for a turn that may fail. Each change may modify the invocation before the turn runs.
func (s *Session) Try(text string, change ...func(*agent.Invocation)) Turn {
	s.t.Helper()
	asked := memory.Begin{}
	if text != "" {
		asked.Message = conversation.User(text)
	}
	return s.run(asked, change...)
}

// Approve allows all calls that wait for an approval, and runs the turn that continues. The test fails if the turn
// fails, or if no call waits for an approval.
func (s *Session) Approve() Turn {
	s.t.Helper()
	return s.answerAllApprovals(execution.Answer{Verdict: execution.Approve})
}

// Deny denies all calls that wait for an approval, with a reason, and runs the turn that continues. It fails the
// test as Approve does.
func (s *Session) Deny(reason string) Turn {
	s.t.Helper()
	return s.answerAllApprovals(execution.Answer{Verdict: execution.Deny, Text: reason})
}

// Answer answers pending calls and runs the turn that continues. Each answer has the ID of a call in Turn.Pending.
// Calls without an answer stay pending. Set Late for an answer that came after its deadline. The test fails if the
// turn fails or if an answer does not match a pending call.
func (s *Session) Answer(answers ...execution.Answer) Turn {
	s.t.Helper()
	info := s.storedInfo()
	settled, err := pendingcall.CheckAnswers(info.Pending, answers, time.Now())
	if err != nil {
		s.t.Fatalf("answer: %v", err)
	}
	for i := range settled {
		settled[i].Late = settled[i].Late || answers[i].Late
	}
	return s.mustSucceed(s.run(memory.Begin{Predecessor: memory.Predecessor{Continues: info.WaitingTurn, Answers: settled}}))
}

// answerAllApprovals gives the same answer to all calls that wait for an approval.
func (s *Session) answerAllApprovals(answer execution.Answer) Turn {
	s.t.Helper()
	var answers []execution.Answer
	for _, p := range s.storedInfo().Pending {
		if p.Needs == execution.NeedApproval {
			answer.ID = p.ID
			answers = append(answers, answer)
		}
	}
	return s.Answer(answers...)
}

// storedInfo reads the session from the store.
func (s *Session) storedInfo() session.Session {
	s.t.Helper()
	info, err := s.Store.GetSession(s.t.Context(), s.Ref)
	if err != nil {
		s.t.Fatalf("read session: %v", err)
	}
	return info
}

// mustSucceed fails the test if the turn failed.
func (s *Session) mustSucceed(turn Turn) Turn {
	s.t.Helper()
	if turn.Err != nil {
		s.t.Fatalf("agent %s, turn %d: %v", s.agent.Name(), turn.Result.Turn, turn.Err)
	}
	return turn
}

// run begins a turn, runs its step with a journal and stores the outcome.
func (s *Session) run(asked memory.Begin, change ...func(*agent.Invocation)) Turn {
	s.t.Helper()
	ctx, end := context.WithCancelCause(s.t.Context())
	defer end(nil)
	s.turns++
	id := fmt.Sprintf("%s-turn-%d", s.Ref.Session, s.turns)
	asked.Ref, asked.User, asked.TurnID, asked.TraceID, asked.Fingerprint = s.Ref, User, id, "trace-"+id, id
	asked.LeaseTTL, asked.Window = memory.MaxLeaseTTL, memory.MaxWindow
	begun, err := s.Store.BeginTurn(ctx, asked)
	if err != nil {
		s.t.Fatalf("begin turn %d: %v", s.turns, err)
	}
	lease := memory.Lease{Ref: s.Ref, TurnID: id, Epoch: begun.Turn.Epoch}
	journal, err := recorder.New(ctx, end, s.Store, lease, 1, begun.Turn.Attempt > 1)
	if err != nil {
		s.t.Fatalf("open the journal of turn %d: %v", s.turns, err)
	}
	inv := agent.Invocation{
		Step: execution.Step{
			TraceID: asked.TraceID, SessionID: s.Ref.Session, User: User, TurnID: id, Turn: begun.Turn.Number,
			Number: 1, Attempt: begun.Turn.Attempt, Agent: s.agent.Name(), History: begun.History, Answers: begun.Turn.Answers, Journal: journal,
		},
		Store: hookstore.New(s.Store, lease, User),
	}
	for _, fn := range change {
		fn(&inv)
	}
	var turn Turn
	for e, err := range s.agent.Run(ctx, inv) {
		if turn.Err = err; err == nil {
			turn.addEvent(e)
		}
	}
	journal.Close()
	err = s.finish(context.WithoutCancel(ctx), lease, begun.Turn.Sequence, &turn)
	end(nil)
	journal.Wait()
	if err != nil {
		s.t.Fatalf("finish turn %d: %v", s.turns, err)
	}
	return turn
}

// finish stores the outcome of a turn, as a worker does.
func (s *Session) finish(ctx context.Context, lease memory.Lease, base int64, turn *Turn) error {
	if turn.Err != nil {
		failed, ok := errors.AsType[*failure.Error](turn.Err)
		if !ok {
			failed = failure.New(failure.Unknown, "agenttest", turn.Err.Error())
		}
		if _, err := s.Store.FailTurn(ctx, memory.Fail{
			Ref: s.Ref, TurnID: lease.TurnID, Epoch: lease.Epoch, Outcome: session.OutcomeFailed,
			Failure: failed,
		}); err != nil {
			return err
		}
	} else {
		outcome := session.OutcomeCompleted
		if turn.Result.Result.InputRequired {
			outcome = session.InputOutcome(turn.Result.Result)
		}
		if _, err := s.Store.CommitStep(ctx, memory.Commit{
			Ref: s.Ref, TurnID: lease.TurnID, Epoch: lease.Epoch, Base: base, Messages: turn.Result.Messages,
			State: turn.Result.State, Result: turn.Result.Result, Outcome: outcome,
		}); err != nil {
			return err
		}
	}
	state, err := s.Store.GetState(ctx, s.Ref)
	turn.State = map[string]any{}
	for key, text := range state.Values {
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
		turn.State[key] = value
	}
	return err
}

// History returns the messages of the session, oldest first.
func (s *Session) History() []conversation.Message {
	s.t.Helper()
	messages, err := s.Store.LoadHistory(s.t.Context(), s.Ref, 0, memory.MaxWindow)
	if err != nil {
		s.t.Fatalf("load history: %v", err)
	}
	return messages
}

// Artifact returns the latest version of an artifact that the agent made.
func (s *Session) Artifact(name string) string {
	s.t.Helper()
	content, _, err := hookstore.New(s.Store, memory.Lease{Ref: s.Ref}, User).LoadArtifact(s.t.Context(), name, 0)
	if err != nil {
		s.t.Fatalf("load artifact %s: %v", name, err)
	}
	return string(content)
}
