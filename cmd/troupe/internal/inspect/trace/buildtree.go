package trace

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// traceTree builds a tree from the events of a trace.
type traceTree struct {
	root         *node
	plan         []*troupev1.PlanStep
	steps        map[int32]*traceStep
	pendingRoute *node // a decision whose step has not begun yet
}

type traceStep struct {
	*node
	attempts map[int32]*traceAttempt
	latest   int32 // number of the latest attempt
	ended    bool
}

type traceAttempt struct {
	*node
	started        time.Time // by the orchestrator's clock
	iteration      *node
	iterationStart time.Time        // start of the iteration, by the worker's clock
	tools          map[string]*node // running tools, by call id
	ended          bool
}

// interruptedNote is the note on a step or call that never ended although its trace has ended.
const interruptedNote = "broken off"

// buildTree returns the tree of a trace: the turn, its steps, and their attempts and calls, in order.
func buildTree(trace *troupev1.Trace, events []*troupev1.Event) *node {
	t := &traceTree{
		plan:  trace.GetPlan(),
		root:  &node{text: fmt.Sprintf("turn %d: %s", trace.GetTurn(), render.TraceState(trace)), style: console.Bold, showsUsage: true},
		steps: map[int32]*traceStep{},
	}
	for _, e := range events {
		if e.GetStep() == 0 {
			t.addTurnEvent(e)
		} else {
			t.addStepEvent(e)
		}
	}
	t.addPendingRoute()
	open := "running"
	if trace.GetResult() != nil {
		open = interruptedNote
	} else if n := len(events); n > 0 {
		t.root.duration = events[n-1].GetTime().AsTime().Sub(events[0].GetTime().AsTime())
	}
	t.markUnfinished(open)
	return t.root
}

// addTurnEvent adds an event that belongs to the turn itself and not to a step.
func (t *traceTree) addTurnEvent(e *troupev1.Event) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		for _, a := range p.TurnStarted.GetAnswers() {
			t.root.add(&node{text: "answer " + render.Answer(a)})
		}
		for _, b := range p.TurnStarted.GetAttachments() {
			t.root.add(&node{text: "file " + render.Attachment(b)})
		}
	case *troupev1.Event_Plan:
		if w := p.Plan.GetWorkflow(); w != "" {
			t.root.add(&node{text: fmt.Sprintf("plan %s: %s", w, strings.Join(p.Plan.GetSteps(), ", ")), children: planNodes(t.plan)})
		}
	case *troupev1.Event_RoutingDecision:
		t.addPendingRoute()
		t.pendingRoute = &node{text: decisionText("route", p.RoutingDecision)}
	case *troupev1.Event_Warning:
		t.root.add(warningNode(p.Warning))
	case *troupev1.Event_TurnResult:
		t.addPendingRoute()
		t.root.duration = p.TurnResult.GetDuration().AsDuration()
		t.root.add(resultNode(p.TurnResult))
	}
}

// addPendingRoute attaches the pending decision to the turn itself, because no step followed it.
func (t *traceTree) addPendingRoute() {
	if t.pendingRoute != nil {
		t.root.add(t.pendingRoute)
		t.pendingRoute = nil
	}
}

// addStepEvent adds an event that belongs to a step.
func (t *traceTree) addStepEvent(e *troupev1.Event) {
	s := t.findStep(e)
	if p := e.GetStepFinished(); p != nil {
		s.endStep(e, p)
		return
	}
	a := s.findAttempt(e)
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_StepStarted:
		a.started = e.GetTime().AsTime()
		a.text = fmt.Sprintf("attempt %d on %s", e.GetAttempt(), e.GetInstanceId())
		if v := p.StepStarted.GetVersion(); v != "" {
			a.text += ", version " + v
		}
	case *troupev1.Event_TextRetracted:
		a.endAttempt(e)
		a.add(failureNode("lost", p.TextRetracted.GetFailure()))
	default:
		a.addEvent(e)
	}
}

func (t *traceTree) findStep(e *troupev1.Event) *traceStep {
	s := t.steps[e.GetStep()]
	if s == nil {
		s = &traceStep{attempts: map[int32]*traceAttempt{}}
		s.node = t.root.add(&node{text: fmt.Sprintf("step %d: %s", e.GetStep(), e.GetAgent()), style: console.Bold, showsUsage: true})
		t.steps[e.GetStep()] = s
	}
	if t.pendingRoute != nil {
		s.add(t.pendingRoute)
		t.pendingRoute = nil
	}
	return s
}

func (s *traceStep) findAttempt(e *troupev1.Event) *traceAttempt {
	a := s.attempts[e.GetAttempt()]
	if a == nil {
		a = &traceAttempt{tools: map[string]*node{}}
		a.node = s.add(&node{text: fmt.Sprintf("attempt %d", e.GetAttempt()), showsUsage: true})
		s.attempts[e.GetAttempt()] = a
		s.latest = e.GetAttempt()
	}
	return a
}

func (s *traceStep) endStep(e *troupev1.Event, p *troupev1.StepFinished) {
	s.ended = true
	s.text += ", " + stepStatusText(p.GetResult())
	s.duration = p.GetDuration().AsDuration()
	s.ownUsage = wire.UsageFromProto(p.GetResult().GetUsage())
	if a := s.attempts[e.GetAttempt()]; a != nil {
		a.endAttempt(e)
	}
	if f := p.GetResult().GetFailure(); f != nil {
		s.add(failureNode("failed", f))
	}
	for _, line := range render.PlannedTasks(p.GetResult()) {
		s.add(&node{text: "planned " + line})
	}
}

// endAttempt marks the attempt as ended and computes its duration. Both times come from the orchestrator's clock.
func (a *traceAttempt) endAttempt(e *troupev1.Event) {
	a.ended = true
	if !a.started.IsZero() {
		a.duration = e.GetTime().AsTime().Sub(a.started)
	}
}

// addEvent adds an event that the worker of the attempt reported.
func (a *traceAttempt) addEvent(e *troupev1.Event) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_ModelCall:
		a.addModelCall(e, p.ModelCall)
	case *troupev1.Event_ToolCallStarted:
		if a.iteration == nil { // its model call was in an earlier attempt
			a.iterationStart = e.GetTime().AsTime()
			a.iteration = a.add(&node{text: "iteration of an attempt before"})
		}
		a.tools[p.ToolCallStarted.GetCallId()] = a.iteration.add(&node{
			text: strings.TrimSpace("tool " + p.ToolCallStarted.GetTool() + " " + console.EscapeBeginning(p.ToolCallStarted.GetArguments(), 60)),
		})
	case *troupev1.Event_SubtaskStarted:
		under := cmp.Or(a.tools[p.SubtaskStarted.GetCallId()], a.node)
		under.add(&node{text: console.EscapeLine(p.SubtaskStarted.GetTarget()) + " works in " + render.Subtask(p.SubtaskStarted)})
	case *troupev1.Event_ArtifactUpdate:
		a.addArtifact(p.ArtifactUpdate)
	case *troupev1.Event_ToolCallFinished:
		a.endTool(e, p.ToolCallFinished)
	case *troupev1.Event_ToolCallPending:
		call := p.ToolCallPending.GetCall()
		under := a.node
		if a.iteration != nil {
			under = a.iteration
		}
		under.add(&node{text: fmt.Sprintf("tool %s %s waits for %s", console.EscapeLine(call.GetTool()),
			console.EscapeBeginning(call.GetArguments(), 60), render.NeededInput(call))})
	case *troupev1.Event_RoutingDecision:
		a.add(&node{text: decisionText("tools", p.RoutingDecision)})
	case *troupev1.Event_AgentMessage:
		a.add(&node{text: render.AgentMessage(p.AgentMessage)})
	case *troupev1.Event_Thinking:
		a.add(&node{text: render.Topic(p.Thinking) + ": " + console.EscapeBeginning(p.Thinking.GetText(), 80), style: console.Dim})
	case *troupev1.Event_Custom:
		a.add(&node{text: "event " + render.CustomEvent(p.Custom)})
	case *troupev1.Event_Warning:
		a.add(warningNode(p.Warning))
	case *troupev1.Event_OwnershipViolation:
		a.add(&node{text: "violation: " + render.Violation(p.OwnershipViolation), style: console.Red})
	}
}

func (a *traceAttempt) addModelCall(e *troupev1.Event, p *troupev1.ModelCall) {
	took := p.GetDuration().AsDuration()
	if p.GetIteration() == 0 { // a call by a hook handler
		a.add(&node{text: "aside: model " + p.GetModel(), duration: took, showsUsage: true, ownUsage: wire.UsageFromProto(p.GetUsage())})
		return
	}
	a.iterationStart = e.GetTime().AsTime().Add(-took)
	a.iteration = a.add(&node{text: fmt.Sprintf("iteration %d", p.GetIteration()), duration: took, showsUsage: true})
	a.iteration.add(&node{
		text: "model " + p.GetModel() + finishNote(p.GetFinish()), duration: took, showsUsage: true, ownUsage: wire.UsageFromProto(p.GetUsage()),
	})
}

// finishNote names what may have cut the model's answer short: a length limit, a content filter, or a reason that the
// worker does not know (empty if nothing did).
func finishNote(f troupev1.FinishReason) string {
	switch f {
	case troupev1.FinishReason_FINISH_REASON_OTHER:
		return ", ended for an unknown reason"
	case troupev1.FinishReason_FINISH_REASON_LENGTH, troupev1.FinishReason_FINISH_REASON_CONTENT_FILTER:
		return ", ended by " + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(f.String(), "FINISH_REASON_")), "_", " ")
	default:
		return ""
	}
}

// addArtifact adds an artifact once it is complete.
func (a *traceAttempt) addArtifact(u *troupev1.ArtifactUpdate) {
	if u.GetComplete() {
		a.add(&node{text: "artifact " + render.ArtifactUpdate(u)})
	}
}

func (a *traceAttempt) endTool(e *troupev1.Event, p *troupev1.ToolCallFinished) {
	n := a.tools[p.GetCallId()]
	if n == nil {
		return // its start is not in the trace, so its iteration is unknown
	}
	delete(a.tools, p.GetCallId())
	n.duration = p.GetDuration().AsDuration()
	a.iteration.duration = e.GetTime().AsTime().Sub(a.iterationStart)
	n.text += fmt.Sprintf(" → %s: %s", render.ToolStatus(p.GetStatus()), console.EscapeBeginning(p.GetSummary(), 80))
	if p.GetStatus() != troupev1.ToolStatus_TOOL_STATUS_SUCCESS {
		n.style = console.Red
	}
}

// markUnfinished marks each step or call that has no end as running or interrupted.
func (t *traceTree) markUnfinished(open string) {
	for _, s := range t.steps {
		if !s.ended {
			s.text += ", " + open
		}
		for number, a := range s.attempts {
			what := open
			if a.ended || number < s.latest {
				what = interruptedNote
			}
			if !a.ended {
				a.text += ", " + what
			}
			for _, tool := range a.tools {
				tool.text += " → " + what
			}
		}
	}
}

// decisionText describes a routing or tool decision with its reason and alternatives.
func decisionText(what string, d *troupev1.RoutingDecision) string {
	text := fmt.Sprintf("%s %s, %s: %s", what, d.GetTarget(), strings.TrimPrefix(d.GetStrategy().String(), "ROUTING_STRATEGY_"), d.GetReason())
	if d.GetConfidence() > 0 && d.GetConfidence() < 1 {
		text += fmt.Sprintf("; confidence %.2f", d.GetConfidence())
	}
	if others := d.GetAlternatives(); len(others) > 0 {
		text += "; others: " + strings.Join(others, ", ")
	}
	return text
}

func warningNode(w *troupev1.Warning) *node {
	return &node{text: fmt.Sprintf("warning %s: %s", w.GetReason(), w.GetMessage()), style: console.Red}
}

func failureNode(what string, f *troupev1.Failure) *node {
	return &node{text: fmt.Sprintf("%s with %s: %s", what, grpcfailure.FromProto(f).Mode, f.GetMessage()), style: console.Red}
}

// resultNode returns the tree line that says how the turn ended.
func resultNode(r *troupev1.TurnResult) *node {
	if f := r.GetFailure(); f != nil {
		return failureNode(string(memorywire.OutcomeFromProto(r.GetOutcome())), f)
	}
	what := "answer"
	if render.NeedsUser(r.GetOutcome()) {
		what = "question"
	}
	text := fmt.Sprintf("%s of %s", what, r.GetAgent())
	if r.Confidence != nil {
		text += fmt.Sprintf(", confidence %.2f", r.GetConfidence())
	}
	return &node{text: text + ": " + console.EscapeBeginning(r.GetText(), 80)}
}
