package differential

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// turnIDCount is how many different turn ids a session uses.
const turnIDCount = 64

var traceIDs = []string{strings.Repeat("a", 32), strings.Repeat("b", 32), strings.Repeat("c", 32)}

func turnIDAt(i int) string { return fmt.Sprintf("t-%d", i) }

func fingerprintOfTurn(turnID string) string { return "of-" + turnID }

// randomText returns a few words of a small vocabulary, so that some searches find messages.
func randomText(d *comparison) string {
	words := make([]string, 1+d.rand.IntN(4))
	for i := range words {
		words[i] = fmt.Sprintf("w%d", d.rand.IntN(40))
	}
	return strings.Join(words, " ")
}

// randomSource returns the name of an untrusted source. Usually it is empty.
func randomSource(d *comparison) string {
	if !d.oneIn(12) {
		return ""
	}
	return pickOne(d, "tool page", "tool mail", conversation.PartyPrefix+"sums", conversation.PartyPrefix+"maps")
}

func beginTurn(d *comparison, s *testSession) call {
	i := s.currentTurn.Number // the next turn
	if d.oneIn(4) {
		i = d.rand.IntN(turnIDCount)
	}
	b := memory.Begin{
		Ref: s.ref, User: s.user, TurnID: turnIDAt(i % turnIDCount), TraceID: pickOne(d, traceIDs...),
		Message: conversation.User(randomText(d)), LeaseTTL: memory.MaxLeaseTTL,
		Window: 1 + d.rand.IntN(12), LookupOnly: d.oneIn(8),
	}
	if s.lastBegin.TurnID != "" && d.oneIn(3) { // a repeat by the holder
		b.TurnID, b.TraceID = s.lastBegin.TurnID, s.lastBegin.TraceID
		b.LostEpoch = pickOne(d, 0, s.currentTurn.Epoch, s.currentTurn.Epoch-1)
	}
	if d.oneIn(8) {
		b.Message = conversation.Message{} // the turn has no message
	}
	if b.Message.Role != "" {
		b.Message.Untrusted = randomSource(d)
	}
	if b.Message.Role != "" && d.oneIn(6) {
		b.Message.Attachments = d.randomFiles()
	}
	d.setContinuation(s, &b)
	d.setPredecessor(s, &b)
	b.Fingerprint = fingerprintOfTurn(b.TurnID)
	if d.oneIn(30) {
		b.Fingerprint = "of-something-else"
	}
	if d.oneIn(30) {
		b.User = pickOne(d, "", "alice", "bob")
	}
	if d.oneIn(3) {
		b.WindowTokens = 1 + d.rand.IntN(30)
	}
	return newBeginCall(s, b)
}

// setContinuation usually continues a waiting turn if there is one. Sometimes it continues a turn that does not
// wait, or sets conflicting fields.
func (d *comparison) setContinuation(s *testSession, b *memory.Begin) {
	if s.waitingTurnID != "" && !d.oneIn(4) {
		b.Message, b.Predecessor.Continues = conversation.Message{}, s.waitingTurnID
		for n := range d.rand.IntN(3) {
			b.Predecessor.Answers = append(b.Predecessor.Answers, execution.Answer{
				ID: pendingcall.ID(1, max(s.nextStep-1, 1), n), Verdict: pickOne(d, execution.Approve, execution.Deny), Text: randomText(d), Late: d.oneIn(4),
			})
		}
	}
	switch {
	case d.oneIn(30):
		b.Predecessor.Continues = turnIDAt(d.rand.IntN(turnIDCount))
	case d.oneIn(30):
		b.Message = conversation.User(randomText(d))
	case d.oneIn(200):
		b.Predecessor.Continues, b.Predecessor.Answers = "", []execution.Answer{{ID: "1-1-2", Verdict: execution.Stop}}
	}
}

// setPredecessor usually resumes a failed turn if there is one. Sometimes it resumes a turn that did not fail, or
// begins with a copy.
func (d *comparison) setPredecessor(s *testSession, b *memory.Begin) {
	switch {
	case b.Predecessor.Continues != "":
	case s.failedTurn.ID != "" && !d.oneIn(3):
		b.Message, b.Predecessor.Resumes, b.Predecessor.Inherited = conversation.Message{}, s.failedTurn.ID, s.failedTurn.Steps
	case d.oneIn(30):
		b.Message, b.Predecessor.Resumes = conversation.Message{}, turnIDAt(d.rand.IntN(turnIDCount))
	case b.Message.Role != "" && (s.currentTurn.ID == "" && d.oneIn(3) || d.oneIn(60)):
		b.Predecessor.Copy = &memory.Copy{StepMessages: []conversation.Message{conversation.Assistant("echo", randomText(d))}, State: randomDelta(d, "")}
		for range d.rand.IntN(5) {
			b.Predecessor.Copy.History = append(b.Predecessor.Copy.History, conversation.Assistant("echo", randomText(d)))
		}
		if d.oneIn(3) {
			b.Predecessor.Copy.History = append([]conversation.Message{{Role: conversation.RoleSummary, Text: randomText(d)}}, b.Predecessor.Copy.History...)
		}
		b.Predecessor.Inherited = []execution.Result{{Step: 1, Agent: "echo", Text: randomText(d), Untrusted: randomSource(d)}}
	case d.oneIn(200):
		b.Predecessor.Inherited = []execution.Result{{Step: 1, Agent: "echo"}}
	}
}

func newBeginCall(s *testSession, b memory.Begin) call {
	return call{"BeginTurn", b, func(ctx context.Context, store memory.Store) (any, error) {
		return store.BeginTurn(ctx, b)
	}, func(reply any) {
		begun, _ := reply.(memory.BeginResult)
		if begun.Status == memory.StatusBegun {
			s.isIdle, s.waitingTurnID, s.failedTurn = false, "", session.Turn{}
			s.lastBegin, s.currentTurn, s.lastSequence, s.nextStep = b, begun.Turn, begun.Turn.Sequence, len(begun.Turn.Steps)+1
		}
	}}
}

// randomLease returns the current lease, or sometimes a wrong one.
func (d *comparison) randomLease(s *testSession) memory.Lease {
	h := memory.Lease{Ref: s.ref, TurnID: s.currentTurn.ID, Epoch: s.currentTurn.Epoch}
	if h.TurnID == "" {
		h.TurnID = turnIDAt(0)
	}
	switch {
	case d.oneIn(12):
		h.Epoch += int64(d.rand.IntN(4) - 2)
	case d.oneIn(20):
		h.TurnID = turnIDAt(d.rand.IntN(turnIDCount))
	}
	return h
}

// newLeaseCall returns a call that needs the lease of a turn.
func newLeaseCall(method string, h memory.Lease, input any, of func(context.Context, memory.Store) (any, error)) call {
	return call{method, []any{h, input}, of, nil}
}

func renewTurn(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	return newLeaseCall("RenewTurn", h, nil, func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.RenewTurn(ctx, h, memory.MaxLeaseTTL)
	})
}

func releaseTurn(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	return newLeaseCall("ReleaseTurn", h, nil, func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.ReleaseTurn(ctx, h)
	})
}

func commitStep(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	c := memory.Commit{
		Ref: s.ref, TurnID: h.TurnID, Epoch: h.Epoch, Base: s.lastSequence,
		Result: execution.Result{Step: max(s.nextStep, 1), Agent: "echo", Text: randomText(d), Usage: execution.Usage{OutputTokens: int64(d.rand.IntN(3))}},
	}
	c.Result.Untrusted = randomSource(d)
	for range d.rand.IntN(4) {
		said := conversation.Assistant("echo", randomText(d))
		said.Untrusted = randomSource(d)
		c.Messages = append(c.Messages, said)
		if d.oneIn(4) {
			c.Messages = append(c.Messages, fixture.ToolRound(1+d.rand.IntN(2))...)
		}
	}
	if d.oneIn(25) {
		c.Messages = append(c.Messages, fixture.ToolRound(15)...)
	}
	if d.oneIn(3) {
		c.State = randomDelta(d, "", "app:", "user:")
	}
	if d.oneIn(2) {
		c.Outcome = pickOne(d, session.OutcomeCompleted, session.OutcomeInputRequired, session.OutcomeInputRequired, session.OutcomeAuthRequired)
	}
	if c.Outcome == session.OutcomeInputRequired && !d.oneIn(4) || d.oneIn(60) {
		c.Result.InputRequired = true
		for n := range 1 + d.rand.IntN(3) {
			c.Result.Pending = append(c.Result.Pending, execution.Pending{
				ID: pendingcall.ID(1, c.Result.Step, n), CallID: randomText(d), Tool: "read", Arguments: `{"page":1}`, Needs: pickOne(d,
					execution.NeedApproval, execution.NeedResult),
				Risk: pickOne(d, execution.Read, execution.AtMostOnce), Reason: randomText(d), Until: pickOne(d, time.Time{},
					time.UnixMilli(int64(d.callCount)).UTC()),
			})
		}
	}
	switch {
	case d.oneIn(20):
		c.Base += int64(d.rand.IntN(3) - 1)
	case d.oneIn(20):
		c.Result.Step = 1 + d.rand.IntN(5)
	case d.oneIn(4) && len(s.commits) > 0: // a repeated commit
		c = pickOne(d, s.commits...)
		c.Epoch = pickOne(d, c.Epoch, h.Epoch)
	case d.oneIn(8):
		c.Result.Failure = failure.New(failure.ResourceAPI, "model.Generate", "the model does not answer").With("status", "503")
	}
	return call{"CommitStep", c, func(ctx context.Context, store memory.Store) (any, error) {
		return store.CommitStep(ctx, c)
	}, func(reply any) {
		last, _ := reply.(int64)
		if c.Epoch == s.currentTurn.Epoch && last > s.lastSequence || c.Result.Step == s.nextStep {
			s.lastSequence, s.nextStep = max(last, s.lastSequence), max(s.nextStep, c.Result.Step+1)
		}
		s.isIdle = s.isIdle || c.Outcome != session.OutcomeOpen
		if len(c.Result.Pending) > 0 {
			s.waitingTurnID = c.TurnID
		}
		s.commits = append(s.commits, c)
		s.commits = s.commits[max(0, len(s.commits)-4):]
	}}
}

// randomUncommitted returns the results of branches with which a turn ends: most wait for an answer, others failed.
func randomUncommitted(d *comparison, step int) (results []execution.Result) {
	for range 1 + d.rand.IntN(3) {
		r := execution.Result{Step: step, Agent: "echo", Text: randomText(d), Untrusted: randomSource(d)}
		if d.oneIn(4) {
			r.Failure = failure.New(failure.ResourceAPI, "model.Generate", "the model does not answer")
		} else {
			r.InputRequired = true
			r.Pending = []execution.Pending{{ID: pendingcall.ID(1, step, 1), Tool: "read", Arguments: "{}", Needs: execution.NeedApproval}}
		}
		results, step = append(results, r), step+1+d.rand.IntN(2)
	}
	return results
}

func failTurn(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	f := memory.Fail{
		Ref: s.ref, TurnID: h.TurnID, Epoch: h.Epoch, Outcome: pickOne(d, session.OutcomeFailed, session.OutcomeCancelled),
		Failure: failure.New(failure.NoWorker, "orchestrator.route", "no ready instance").With("agent", "echo"),
	}
	if d.oneIn(3) {
		f.Outcome, f.Failure, f.Results = session.OutcomeInputRequired, nil, randomUncommitted(d, s.nextStep)
	}
	return call{"FailTurn", f, func(ctx context.Context, store memory.Store) (any, error) {
		return store.FailTurn(ctx, f)
	}, func(reply any) {
		s.isIdle = true
		if len(f.Results) > 0 {
			s.waitingTurnID = f.TurnID
		}
		if closed, _ := reply.(session.Turn); closed.Outcome == session.OutcomeFailed {
			s.failedTurn = closed
		}
	}}
}

func (d *comparison) randomStep(s *testSession) int {
	if d.oneIn(8) {
		return 1 + d.rand.IntN(4)
	}
	return max(s.nextStep, 1)
}

func recordEntries(d *comparison, s *testSession) call {
	h, step := d.randomLease(s), d.randomStep(s)
	entries := slices.Clone(fixture.ModelRounds(1 + d.rand.IntN(3)))
	entries = entries[d.rand.IntN(len(entries)):]
	if d.oneIn(6) {
		e := &entries[d.rand.IntN(len(entries))]
		e.Text += "!"
	}
	for i := range entries {
		if entries[i].Tool == "" {
			entries[i].Reply.Untrusted = pickOne(d, "", "tool page", "tool page")
		}
	}
	return newLeaseCall("Record", h, fmt.Sprintf("step %d: %+v", step, entries), func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.Record(ctx, h, step, entries)
	})
}

// recordOversizedJournal records more bytes than a journal may hold, in a step that no other call reads.
func recordOversizedJournal(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	const step = 50
	return newLeaseCall("Record", h, "too much", func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.Record(ctx, h, step, fixture.LongEntries(memory.MaxJournalBytes>>20+1, 1<<20))
	})
}

func loadJournal(d *comparison, s *testSession) call {
	h, step, after := d.randomLease(s), d.randomStep(s), d.rand.IntN(4)
	return newLeaseCall("LoadJournal", h, []int{step, after}, func(ctx context.Context, store memory.Store) (any, error) {
		return store.LoadJournal(ctx, h, step, after)
	})
}
