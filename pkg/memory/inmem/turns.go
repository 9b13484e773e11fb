package inmem

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// BeginTurn implements memory.Turns.
func (s *Store) BeginTurn(_ context.Context, b memory.Begin) (memory.Begun, error) {
	const op = "memory.BeginTurn"
	if err := memory.CheckBegin(op, b); err != nil {
		return memory.Begun{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(op, b.Ref)
	if err != nil {
		return memory.Begun{}, err
	}
	if c != nil && c.User != b.User && (c.User != "" || c.Turns > 0) {
		return memory.Begun{}, noSession(op, b.Ref)
	}
	if t := s.turn(c, b.TurnID); t != nil {
		return s.beginKnown(op, c, t, b)
	}
	if b.LookupOnly {
		return memory.Begun{}, unknownTurn(op, b.Ref, b.TurnID)
	}
	if c != nil && c.State == session.Closed {
		return memory.Begun{}, failure.Newf(failure.SessionClosed, op, "session %s is closed; resume it first", c.ID).With("session_id", c.ID)
	}
	if c != nil && c.OpenTurn != "" && s.now().Before(c.deadline.Add(b.TakeoverGrace)) {
		return memory.Begun{}, busy(op, c)
	}
	from, err := s.origin(op, c, b)
	if err != nil {
		return memory.Begun{}, err
	}
	if c == nil && s.leaving[owner{b.Ref.Tenant, b.User}] {
		return memory.Begun{}, sessionDeleted(op, b.Ref)
	}
	made := c == nil
	if made {
		c = s.create(b.Ref)
	}
	if !s.room(c, brought(b)...) {
		return memory.Begun{}, s.full(op, c)
	}
	if !s.attachable(c, b) {
		return memory.Begun{}, artifactsFull(op, c)
	}
	s.failExpired(op, c, b)
	s.sessions[b.Ref] = c
	t := s.open(c, b, from)
	if made {
		c.Created = c.LastActivity // by one clock, as in a script
	}
	return s.begun(c, t, b), nil
}

// origin is the turn whose place a new one takes. At most one of its fields is set.
type origin struct{ waiting, failed *turn }

// origin finds the turn whose place the new one takes. Modes: turn_not_open; key_reused when a copy
// would begin a session that exists.
func (s *Store) origin(op string, c *conversed, b memory.Begin) (origin, error) {
	waiting, err := s.continued(op, c, b)
	if err != nil {
		return origin{}, err
	}
	failed, err := s.resumed(op, c, b)
	if err != nil {
		return origin{}, err
	}
	if c != nil && b.Copy != nil {
		return origin{}, storeerror.SessionExists(op, b.Ref)
	}
	return origin{waiting, failed}, nil
}

// failExpired fails the open turn of the session, whose lease has expired, to make room for another.
func (s *Store) failExpired(op string, c *conversed, b memory.Begin) {
	expired := c.turns[c.OpenTurn]
	if expired == nil {
		return
	}
	expired.Failure = failure.New(failure.SystemTimeout, op,
		"the turn was given up: its lease ran out before it had an answer, and another turn of the session began").With("turn_id", expired.ID)
	if said, ok := memory.PartialMessage(expired.journals[expired.running()]); ok && s.room(c, append(b.UserMessages(), said)...) {
		s.say(c, expired, said)
	}
	c.reads(memory.JournalSource(expired.journals[expired.running()]))
	s.closeTurn(c, expired, session.OutcomeFailed)
}

// open makes the turn, with all that it begins with, and gives it to the caller.
func (s *Store) open(c *conversed, b memory.Begin, from origin) *turn {
	c.User = b.User
	c.Turns++
	t := &turn{
		Turn:        session.Turn{ID: b.TurnID, Trace: b.TraceID, Number: c.Turns},
		fingerprint: b.Fingerprint,
		commits:     map[int]memory.Commit{},
		journals:    map[int][]execution.Entry{},
	}
	c.turns[b.TurnID] = t
	c.reads(b.UntrustedSource())
	t.source = c.source
	if from.waiting != nil {
		t.goOn(from.waiting, b)
	}
	if from.failed != nil {
		t.resume(from.failed, b)
	}
	t.inherit(b)
	c.copied(t, b)
	c.leave()
	c.State, c.OpenTurn, c.LastTrace = session.Busy, b.TurnID, b.TraceID
	said := b.UserMessages()
	for i := range said {
		said[i].Attachments = s.attach(c, t, b)
	}
	s.say(c, t, said...)
	if from.waiting == nil && from.failed == nil {
		t.first = t.Sequence
	}
	s.follow(c, t, b)
	s.take(c, t, b)
	return t
}

func (s *Store) beginKnown(op string, c *conversed, t *turn, b memory.Begin) (memory.Begun, error) {
	left := c.deadline.Sub(s.now())
	holds := left > 0 && t.holder == b.TraceID
	switch {
	case t.fingerprint != b.Fingerprint:
		return memory.Begun{}, failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case t.Outcome != session.OutcomeOpen:
		return memory.Begun{Status: memory.StatusClosed, Turn: t.seen()}, nil
	case holds && (b.LostEpoch != t.Epoch || b.LookupOnly):
		return s.begun(c, t, b), nil
	case !holds && (left > 0 || b.LookupOnly):
		return memory.Begun{Status: memory.StatusOpen, Turn: t.seen(), LeaseLeft: max(0, left)}, nil
	}
	s.take(c, t, b)
	return s.begun(c, t, b), nil
}

// take gives the turn to the caller.
func (s *Store) take(c *conversed, t *turn, b memory.Begin) {
	c.epoch = max(c.epoch+1, s.cfg.Generation<<32)
	c.deadline, c.LastActivity = s.now().Add(b.LeaseTTL), s.now()
	t.Epoch, t.holder = c.epoch, b.TraceID
	t.Attempt++
}

func (s *Store) begun(c *conversed, t *turn, b memory.Begin) memory.Begun {
	window := c.window(t.first, b.Window, int64(b.WindowTokens))
	return memory.Begun{Status: memory.StatusBegun, Turn: t.seen(), History: conversation.Behind(t.source, window), KeepsJournals: s.cfg.KeepJournals > 0}
}

// RenewTurn implements memory.Turns.
func (s *Store) RenewTurn(_ context.Context, h memory.Lease, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, _, err := s.held("memory.RenewTurn", h)
	if err != nil {
		return err
	}
	c.deadline = s.now().Add(lease)
	return nil
}

// ReleaseTurn implements memory.Turns.
func (s *Store) ReleaseTurn(_ context.Context, h memory.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, _, err := s.held("memory.ReleaseTurn", h)
	if err != nil {
		return err
	}
	c.deadline = s.now()
	return nil
}

// CommitStep implements memory.Turns.
func (s *Store) CommitStep(_ context.Context, commit memory.Commit) (int64, error) {
	const op = "memory.CommitStep"
	if err := memory.CheckDelta(op, commit.State); err != nil {
		return 0, err
	}
	if err := memory.CheckPending(op, commit); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := memory.Lease{Ref: commit.Ref, TurnID: commit.TurnID, Epoch: commit.Epoch}
	step, last := commit.Result.Step, commit.Base+int64(len(commit.Messages))
	left := commit.Journal
	commit = essence(commit)
	c, err := s.find(op, h.Ref)
	if err != nil {
		return 0, err
	}
	if t := s.turn(c, h.TurnID); t != nil && t.Epoch == h.Epoch {
		if done, ok := t.commits[step]; ok && reflect.DeepEqual(done, commit) {
			return last, nil
		}
	}
	c, t, err := s.held(op, h)
	if err != nil {
		return 0, err
	}
	deltas := split(commit.State)
	switch {
	case t.committed(step):
		return 0, stepCommitted(op, t, step)
	case t.stopped() && step != t.inherits:
		return 0, storeerror.WaitingStepFirst(op, t.ID, step, t.inherits)
	case len(commit.Result.Pending) > 0 && step < t.running():
		return 0, storeerror.NotLastStep(op, t.ID, step)
	case commit.Base != c.Sequence:
		return 0, failure.Newf(failure.BaseMismatch, op, "session %s goes up to message %d and not %d; load the history again and repeat the step", c.ID, c.Sequence, commit.Base).
			With("base_sequence", decimal(commit.Base)).With("last_sequence", decimal(c.Sequence))
	case !s.room(c, commit.Messages...):
		return 0, s.full(op, c)
	case deltas[memory.ScopeUser] != nil && c.User == "":
		return 0, noUser(op, c)
	}
	for name, delta := range deltas {
		if !s.scope(h.Ref, c, name).fits(delta) {
			return 0, stateFull(op, name)
		}
	}
	s.say(c, t, commit.Messages...)
	c.reads(commit.UntrustedSource())
	for name, delta := range deltas {
		s.scope(h.Ref, c, name).change(delta)
	}
	t.commits[step] = commit
	result := commit.Result
	result.Sequence = c.Sequence
	t.Steps = append(t.Steps, result)
	slices.SortFunc(t.Steps, func(a, b execution.Result) int { return a.Step - b.Step })
	t.Sequence = c.Sequence
	journal := t.journals[step]
	s.keep(t, step, left)
	delete(t.journals, step)
	c.LastActivity = s.now()
	if commit.Outcome != session.OutcomeOpen {
		s.closeTurn(c, t, commit.Outcome)
	}
	if len(commit.Result.Pending) > 0 {
		c.WaitingTurn, t.kept = t.ID, journal
	}
	return last, nil
}

// essence is what makes a commit another one: not who commits, and not what the store sets.
func essence(c memory.Commit) memory.Commit {
	c.Epoch, c.Result.Sequence, c.Journal = 0, 0, nil
	c.Messages = slices.Clone(c.Messages)
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
	}
	return c
}

// FailTurn implements memory.Turns.
func (s *Store) FailTurn(_ context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(op, f.Ref)
	if err != nil {
		return session.Turn{}, err
	}
	if t := s.turn(c, f.TurnID); t != nil && t.Outcome != session.OutcomeOpen {
		return t.seen(), nil
	}
	c, t, err := s.held(op, memory.Lease{Ref: f.Ref, TurnID: f.TurnID, Epoch: f.Epoch})
	if err != nil {
		return session.Turn{}, err
	}
	if said, ok := memory.PartialMessage(t.journals[t.running()]); ok && s.room(c, said) {
		s.say(c, t, said)
	}
	c.reads(memory.JournalSource(t.journals[t.running()]))
	t.Failure = f.Failure
	s.keep(t, t.running(), nil)
	c.LastActivity = s.now()
	s.closeTurn(c, t, f.Outcome)
	return t.seen(), nil
}

func (s *Store) closeTurn(c *conversed, t *turn, o session.Outcome) {
	t.Outcome, t.closed = o, s.now()
	if o != session.OutcomeFailed { // a later turn may resume a failed one
		t.journals = nil
	}
	c.State, c.OpenTurn = o.After(), ""
}

// say appends messages to the session in a turn.
func (s *Store) say(c *conversed, t *turn, messages ...conversation.Message) {
	for _, m := range messages {
		c.Sequence++
		m = m.Stored()
		m.Sequence, m.Turn, m.Time = c.Sequence, t.Number, s.now()
		c.log = append(c.log, m)
	}
	t.Sequence = c.Sequence
}

// reads remembers a source of untrusted words.
func (c *conversed) reads(source string) { c.source = conversation.Gravest(c.source, source) }

// room reports whether the session may hold the messages too.
func (s *Store) room(c *conversed, messages ...conversation.Message) bool {
	return len(messages) == 0 ||
		int64(len(c.log)+len(messages)) <= s.cfg.MaxMessages && size(c.log)+size(messages) <= s.cfg.MaxBytes
}

func size(messages []conversation.Message) int64 {
	bytes := 0
	for _, m := range messages {
		bytes += conversation.Size(m)
	}
	return int64(bytes)
}

// seen is the turn as a caller may keep it.
func (t *turn) seen() session.Turn {
	seen := t.Turn
	seen.Steps, seen.Answers = slices.Clone(t.Steps), slices.Clone(t.Answers)
	return seen
}

func (t *turn) committed(step int) bool {
	_, ok := t.commits[step]
	return ok
}

// running is the number of the step behind the last that was committed.
func (t *turn) running() int {
	last := 0
	if len(t.Steps) > 0 {
		last = t.Steps[len(t.Steps)-1].Step
	}
	return max(last+1, t.inherits)
}
