// Package decide classifies a request: a new turn, a repeated one, answers to pending calls, a resume,
// a fork, or a takeover. A request passes through these files from top to bottom, once:
//
//	decide.go    Decide, the table of cases, and the target that handles the turn
//	lookup.go    looks up the session and the turn in the memory service
//	continue.go  a turn in doubt, a repeated turn, answers
//	resume.go    a failed turn that is resumed, from its trace
//	fork.go      a new session from an earlier trace
//	earlier_turn.go  loads the turn of an earlier trace, for a resume or a fork
package decide

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

const op = "turn.Orchestrate"

// Decider looks up the stored data about requests and decides how each is handled. It is safe for concurrent use.
type Decider struct {
	Memory    Memory
	Traces    *trace.Traces
	Instances *instances.Cache
	Workflows *workflow.Set
	InDoubt   *InDoubtTurns
}

// Decide looks up the stored data about a request, and decides how the request is handled.
func (d *Decider) Decide(ctx context.Context, req request.Request) (Admission, error) {
	kind := KindOf(req)
	begin := newBegin(req, kind)
	if kind == Text {
		return d.withTarget(FindCase(kind, NotAsked, false), begin, req.Target), nil
	}
	if req.Target != "" {
		return Admission{}, newTargetError(kind)
	}
	stored, err := d.lookup(ctx, req, kind, begin)
	if err != nil {
		return Admission{}, err
	}
	switch c := FindCase(kind, stored.found, len(stored.session.Pending) > 0); c {
	case RetryBegin:
		return d.admitInDoubt(ctx, req, begin, stored.firstTry), nil
	case Repeated:
		return d.admitRepeated(ctx, req, begin, stored.turn.Trace)
	case ContinueTurn:
		return d.admitAnswers(ctx, req, begin, stored.session)
	case ResumeTurn:
		return d.admitResume(ctx, req, begin)
	case ForkSession:
		return d.admitFork(ctx, req, begin)
	default: // NothingPending: ask the memory service nevertheless, because another turn may be open by now
		return Admission{Case: c, Begin: begin, Flow: workflow.SingleAgent("")}, nil
	}
}

func newTargetError(kind RequestKind) error {
	if kind == Answers {
		return failure.New(failure.UserInvalidInput, op, "target: answers go to the agents that wait for them; leave it empty")
	}
	return failure.New(failure.UserInvalidInput, op,
		"target: a turn that continues from a trace has the target of that trace; leave it empty").With("fields", "target")
}

// newBegin returns the Begin for a request, before its target is known.
func newBegin(req request.Request, kind RequestKind) memory.Begin {
	begin := memory.Begin{
		Ref: req.Ref, User: req.User, TurnID: req.TurnID(), TraceID: NewTraceID(), Fingerprint: req.Fingerprint(),
		LeaseTTL: lease.Duration, TakeoverGrace: lease.TakeoverGrace, Window: workflow.SingleAgent("").HistoryWindow,
	}
	switch kind {
	case Text:
		begin.Message = conversation.User(req.Text)
		begin.Message.Attachments = req.Files
		begin.Message.Untrusted = req.Parent.GetUntrusted()
	case Answers:
		begin.Predecessor.Continues = begin.TurnID // placeholder until the turn with the pending calls is known
	case Resume, Fork, Orphan: // no message
	}
	return begin
}

// NewTraceID returns a new W3C trace id.
func NewTraceID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// RequestKind is the kind of a request for a turn.
type RequestKind string

// The kinds.
const (
	Text    RequestKind = "text"    // a message of the user
	Answers RequestKind = "answers" // answers the pending calls of a session
	Resume  RequestKind = "resume"  // resumes a failed turn, given its trace
	Fork    RequestKind = "fork"    // begins a new session with the data of an ended trace
	Orphan  RequestKind = "orphan"  // continues an open trace whose orchestrator was lost; restored from the record of the trace
)

// KindOf returns the kind of a request. It never returns Orphan.
func KindOf(req request.Request) RequestKind {
	switch {
	case req.IsAnswer():
		return Answers
	case req.Source.IsResume():
		return Resume
	case req.Source != (request.Source{}):
		return Fork
	default:
		return Text
	}
}

// LookupResult is what the memory service contains for the id of a turn.
type LookupResult string

// The possible results. NotAsked applies to a text, which begins its turn without a lookup.
const (
	NotAsked     LookupResult = "not asked"
	Absent       LookupResult = "absent"    // no such turn
	MaybeBegun   LookupResult = "doubtful"  // this orchestrator may have begun the turn, but got no answer
	LeaseHeld    LookupResult = "held"      // an open turn, under the lease of an orchestrator
	LeaseExpired LookupResult = "abandoned" // an open turn whose lease has run out
	Closed       LookupResult = "closed"    // a turn that has ended
)

// Case is how a request is handled.
type Case string

// The cases.
const (
	NewTurn         Case = "new turn"        // begin it; if the turn already exists, the memory service returns it
	RetryBegin      Case = "retry begin"     // begin it again under the same trace, with the target of the first try
	Repeated        Case = "repeated"        // the turn exists: watch it, or take it over
	ContinueTurn    Case = "continue turn"   // begin a turn that replaces the one with the pending calls
	NothingPending  Case = "nothing pending" // no call is pending that the answers could belong to
	ResumeTurn      Case = "resume turn"     // begin a turn that replaces the failed one
	ForkSession     Case = "fork session"    // begin a session with the state that the earlier one had before its turn
	EndVanishedTurn Case = "end vanished"    // end the trace, because its turn was deleted with its session
	EndClosedTurn   Case = "end closed"      // end the trace of a turn that is closed
	TakeOver        Case = "take over"       // claim the lease and continue the turn
)

// decision is one row of the table.
type decision struct {
	kind            RequestKind
	found           []LookupResult
	hasPendingCalls bool // whether the session has pending calls (only for Answers)
	result          Case
}

// decisions is the table that FindCase searches.
var decisions = []decision{
	{kind: Text, found: []LookupResult{NotAsked}, result: NewTurn},

	{kind: Answers, found: []LookupResult{MaybeBegun}, result: RetryBegin},
	{kind: Answers, found: []LookupResult{LeaseHeld, LeaseExpired, Closed}, result: Repeated},
	{kind: Answers, found: []LookupResult{Absent}, hasPendingCalls: true, result: ContinueTurn},
	{kind: Answers, found: []LookupResult{Absent}, hasPendingCalls: false, result: NothingPending},

	{kind: Resume, found: []LookupResult{MaybeBegun}, result: RetryBegin},
	{kind: Resume, found: []LookupResult{LeaseHeld, LeaseExpired, Closed}, result: Repeated},
	{kind: Resume, found: []LookupResult{Absent}, result: ResumeTurn},

	{kind: Fork, found: []LookupResult{MaybeBegun}, result: RetryBegin},
	{kind: Fork, found: []LookupResult{LeaseHeld, LeaseExpired, Closed}, result: Repeated},
	{kind: Fork, found: []LookupResult{Absent}, result: ForkSession},

	{kind: Orphan, found: []LookupResult{Absent}, result: EndVanishedTurn},
	{kind: Orphan, found: []LookupResult{Closed}, result: EndClosedTurn},
	{kind: Orphan, found: []LookupResult{LeaseHeld, LeaseExpired}, result: TakeOver},
}

// FindCase returns the case for a kind of request and a lookup result. pending matters only for answers that have
// no turn yet. The case is empty for an impossible combination.
func FindCase(kind RequestKind, found LookupResult, pending bool) Case {
	for _, row := range decisions {
		if row.kind != kind || kind == Answers && found == Absent && row.hasPendingCalls != pending {
			continue
		}
		if slices.Contains(row.found, found) {
			return row.result
		}
	}
	return ""
}

// Admission is what Decide has decided about a request before its turn begins.
type Admission struct {
	Case      Case
	Begin     memory.Begin // the request to the memory service
	Flow      *workflow.Workflow
	Target    string         // workflow or agent that handles the turn
	TargetErr error          // why nothing can handle the turn (nil when Target can)
	Labels    request.Labels // labels of the continued turn or of the earlier trace

	Pending      []execution.Pending // calls that the request answers
	PendingSince time.Time           // when the pending calls began to wait
	ForkText     string              // text with which a fork begins
	Rerun        map[int]string      // agents of the steps that failed and run again, by number
}

// WithTarget returns the admission of a turn for a target. The caller sets the case.
func (d *Decider) WithTarget(begin memory.Begin, target string) Admission {
	return d.withTarget("", begin, target)
}

func (d *Decider) withTarget(c Case, begin memory.Begin, target string) Admission {
	decided := Admission{Case: c, Begin: begin}
	decided.Flow, decided.Target, decided.TargetErr = d.Resolve(target)
	decided.Begin.Window = decided.Flow.HistoryWindow
	return decided
}

// Resolve returns the workflow and the target for a name. With an error, the workflow is empty except for its
// window. Before the registry was read, Resolve accepts unknown agents, because they may exist.
func (d *Decider) Resolve(target string) (*workflow.Workflow, string, error) {
	flow, ok := d.Workflows.Find(target)
	switch {
	case ok:
		return flow, flow.Name, nil
	case target == "":
		return workflow.SingleAgent(""), "", failure.New(failure.NotFound, op, "target: no workflow is declared here; name an agent")
	case d.Instances.KnowsAgent(target) || d.Workflows.UsesAgent(target):
		return workflow.SingleAgent(target), target, nil
	case !d.Instances.IsFilled():
		return workflow.SingleAgent(""), "", failure.New(failure.SystemNetwork, op, "the registry of agents cannot be reached yet; try again")
	default:
		return workflow.SingleAgent(""), "", failure.Newf(failure.NotFound, op,
			"target: no workflow or agent is called %q; see ListAgents", target).With("target", target)
	}
}
