// Package decide says what a request is: a new turn, a repeated one, answers to pending calls, a resume,
// a fork, or a takeover. The table of cases stands in this file. The other files build what follows from
// the cases that continue an earlier turn.
package decide

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// op names the operation in failures.
const op = "turn.Orchestrate"

// Memory is what decisions need of the memory service.
type Memory interface {
	BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error)
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error)
}

// Decider looks up what the stores have about requests. Safe for concurrent use.
type Decider struct {
	Memory    Memory
	Traces    *trace.Traces
	Roster    *instances.Cache
	Workflows *workflow.Set
	InDoubt   *InDoubt
}

// Kind is how a turn is asked for.
type Kind string

// The kinds.
const (
	Text    Kind = "text"    // a user says something
	Answers Kind = "answers" // to the pending calls of a session
	Resume  Kind = "resume"  // a failed turn, from its trace
	Fork    Kind = "fork"    // an ended trace, in a new session
	Orphan  Kind = "orphan"  // an open trace whose orchestrator went away; no request asks, its record does
)

// KindOf is the kind of a request.
func KindOf(req request.Request) Kind {
	switch {
	case req.IsAnswer():
		return Answers
	case req.From.IsResume():
		return Resume
	case req.From != (request.From{}):
		return Fork
	default:
		return Text
	}
}

// Found is what the memory service has under the id of the turn.
type Found string

// What may be found. NotAsked stands for a text, of which nothing needs to be known before it begins.
const (
	NotAsked  Found = "not asked"
	Absent    Found = "absent"    // no such turn
	Doubtful  Found = "doubtful"  // a turn that this orchestrator began without learning that it did
	Held      Found = "held"      // an open turn, under the lease of an orchestrator
	Abandoned Found = "abandoned" // an open turn whose lease has run out
	Closed    Found = "closed"    // a turn that has ended
)

// Case is what an admission turns out to be.
type Case string

// The cases.
const (
	NewTurn        Case = "new turn"        // begin it; if the turn is known the memory service returns that one
	RetryBegin     Case = "retry begin"     // begin it again under the same trace, with the target of the first try
	Repeated       Case = "repeated"        // as the turn was handled before: watch it, or take it over
	ContinueTurn   Case = "continue turn"   // begin a turn in the place of the one that waits for the answers
	NothingPending Case = "nothing pending" // the answers have nothing to answer
	ResumeTurn     Case = "resume turn"     // begin a turn in the place of the one that failed
	ForkSession    Case = "fork session"    // begin a session as the earlier one was before its turn
	EndVanished    Case = "end vanished"    // end the trace: its turn is gone with its session
	EndClosed      Case = "end closed"      // end the trace of a turn that is closed
	TakeOver       Case = "take over"       // take the lease, and continue the turn
)

// decision is one row of the table.
type decision struct {
	kind    Kind
	found   []Found
	pending bool // with Answers: calls of the session are pending
	then    Case
}

// decisions is the one place that says what follows from what is found in the stores.
var decisions = []decision{
	{kind: Text, found: []Found{NotAsked}, then: NewTurn},

	{kind: Answers, found: []Found{Doubtful}, then: RetryBegin},
	{kind: Answers, found: []Found{Held, Abandoned, Closed}, then: Repeated},
	{kind: Answers, found: []Found{Absent}, pending: true, then: ContinueTurn},
	{kind: Answers, found: []Found{Absent}, pending: false, then: NothingPending},

	{kind: Resume, found: []Found{Doubtful}, then: RetryBegin},
	{kind: Resume, found: []Found{Held, Abandoned, Closed}, then: Repeated},
	{kind: Resume, found: []Found{Absent}, then: ResumeTurn},

	{kind: Fork, found: []Found{Doubtful}, then: RetryBegin},
	{kind: Fork, found: []Found{Held, Abandoned, Closed}, then: Repeated},
	{kind: Fork, found: []Found{Absent}, then: ForkSession},

	{kind: Orphan, found: []Found{Absent}, then: EndVanished},
	{kind: Orphan, found: []Found{Closed}, then: EndClosed},
	{kind: Orphan, found: []Found{Held, Abandoned}, then: TakeOver},
}

// CaseOf returns the case of a kind of request by what is found. Pending counts for answers that have no
// turn yet. It is empty for a combination that cannot be.
func CaseOf(kind Kind, found Found, pending bool) Case {
	for _, row := range decisions {
		if row.kind != kind || kind == Answers && found == Absent && row.pending != pending {
			continue
		}
		if slices.Contains(row.found, found) {
			return row.then
		}
	}
	return ""
}

// Admission is what is decided about a request before its turn begins.
type Admission struct {
	Case      Case
	Begin     memory.Begin // what the memory service is asked
	Flow      *workflow.Workflow
	Target    string         // workflow or agent that handles the turn
	TargetErr error          // why nothing can handle it; nil when something can
	Labels    request.Labels // of the turn that is continued, or of the earlier trace

	Pending []execution.Pending // calls that the request answers
	Since   time.Time           // when they began to wait
	Text    string              // that a fork begins with
	Rerun   map[int]string      // agents of the steps that failed and run again, by number
}

// Decide looks up what the stores have about a request, and decides what follows.
func (d *Decider) Decide(ctx context.Context, req request.Request) (Admission, error) {
	kind := KindOf(req)
	if kind != Text && req.Target != "" {
		return Admission{}, errTarget(kind)
	}
	if kind == Text {
		return d.newTurn(req), nil
	}
	begin := d.newBegin(req, workflow.Single(""))
	if kind == Answers {
		return d.decideAnswers(ctx, req, begin)
	}
	known, found, err := d.Known(ctx, begin)
	if err != nil && found != Absent {
		return Admission{}, err
	}
	switch c := CaseOf(kind, d.orInDoubt(found, begin.TurnID, known.Turn.Trace), false); c {
	case RetryBegin, Repeated:
		decided, err := d.asBefore(ctx, req, begin, known.Turn.Trace, c)
		decided.Rerun = d.FailedSteps(ctx, req)
		return decided, err
	default:
		decided, err := d.fromEarlier(ctx, req, begin)
		decided.Case = c
		return decided, err
	}
}

func errTarget(kind Kind) error {
	if kind == Answers {
		return failure.New(failure.UserInvalidInput, op, "target: answers go to the agents that wait for them; leave it empty")
	}
	return failure.New(failure.UserInvalidInput, op,
		"target: what continues from a trace is handled as that was; leave it empty").With("fields", "target")
}

// newTurn is the admission of a text.
func (d *Decider) newTurn(req request.Request) Admission {
	flow, target, targetErr := d.Resolve(req.Target)
	return Admission{Case: CaseOf(Text, NotAsked, false), Begin: d.newBegin(req, flow), Flow: flow, Target: target, TargetErr: targetErr}
}

// asBefore is the admission of a request whose turn is known: handled as its trace says. The trace of a
// turn in doubt may not be stored; the first try is remembered instead.
func (d *Decider) asBefore(ctx context.Context, req request.Request, begin memory.Begin, traceID string, c Case) (Admission, error) {
	if c == RetryBegin {
		tried, _ := d.InDoubt.Peek(begin.TurnID)
		decided := d.WithTarget(begin, tried.Target)
		decided.Case, decided.Labels = c, tried.Labels
		return decided, nil
	}
	decided, err := d.likeTrace(ctx, req, begin, traceID)
	decided.Case = c
	return decided, err
}

// orInDoubt is what was found of a turn, or Doubtful when this orchestrator may have begun it itself.
func (d *Decider) orInDoubt(found Found, turnID, traceID string) Found {
	if tried, ok := d.InDoubt.Peek(turnID); found != Absent && ok && tried.Trace == traceID {
		return Doubtful
	}
	return found
}

// Known asks the memory service what it has of a turn, and changes nothing. The error is not_found when
// the turn is Absent; any other error leaves open what there is.
func (d *Decider) Known(ctx context.Context, begin memory.Begin) (memory.Begun, Found, error) {
	begin.LookupOnly = true
	begun, err := d.Ask(ctx, begin)
	switch {
	case failure.Is(err, failure.NotFound):
		return begun, Absent, err
	case err != nil:
		return begun, "", err
	case begun.Status == memory.StatusClosed:
		return begun, Closed, nil
	case begun.Status == memory.StatusOpen && begun.LeaseLeft == 0:
		return begun, Abandoned, nil
	default:
		return begun, Held, nil
	}
}

// Ask asks the memory service for a turn.
func (d *Decider) Ask(ctx context.Context, begin memory.Begin) (memory.Begun, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	if begin.LookupOnly {
		begin.Message.Attachments = nil // nothing is stored
	}
	return retry.Do(ctx, func(ctx context.Context) (memory.Begun, error) { return d.Memory.BeginTurn(ctx, begin) })
}

// newBegin is what the memory service is asked for a request.
func (d *Decider) newBegin(req request.Request, flow *workflow.Workflow) memory.Begin {
	begin := memory.Begin{
		Ref: req.Ref(), User: req.User, TurnID: req.TurnID(), TraceID: NewTraceID(), Fingerprint: req.Fingerprint(),
		LeaseTTL: lease.Duration, TakeoverGrace: lease.Reserve, Window: flow.Window,
	}
	if KindOf(req) == Text {
		begin.Message = conversation.User(req.Text)
		begin.Message.Attachments = req.Files
		begin.Message.Untrusted = req.Parent.GetUntrusted()
	}
	return begin
}

// WithTarget is an admission whose turn is handled by a target.
func (d *Decider) WithTarget(begin memory.Begin, target string) Admission {
	decided := Admission{Begin: begin}
	decided.Flow, decided.Target, decided.TargetErr = d.Resolve(target)
	decided.Begin.Window = decided.Flow.Window
	return decided
}

// Resolve finds what a target names. With an error the workflow is empty but for its window. An unknown
// agent is not rejected while the registry was never read, because it may be there.
func (d *Decider) Resolve(target string) (*workflow.Workflow, string, error) {
	flow, ok := d.Workflows.Find(target)
	switch {
	case ok:
		return flow, flow.Name, nil
	case target == "":
		return workflow.Single(""), "", failure.New(failure.NotFound, op, "target: no workflow is declared here; name an agent")
	case d.Roster.Knows(target) || d.Workflows.UsesAgent(target):
		return workflow.Single(target), target, nil
	case !d.Roster.IsFilled():
		return workflow.Single(""), "", failure.New(failure.SystemNetwork, op, "the registry of agents cannot be reached yet; try again")
	default:
		return workflow.Single(""), "", failure.Newf(failure.NotFound, op,
			"target: no workflow or agent is called %q; see ListAgents", target).With("target", target)
	}
}

// NewTraceID returns a new W3C trace id.
func NewTraceID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}
