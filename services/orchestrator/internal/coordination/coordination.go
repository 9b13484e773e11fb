// Package coordination tells the state that the agents of a turn share by way of their orchestrator
// (contract RA-2, SO-10). Nobody keeps it: it follows from the history, the decisions and the
// results, so that a turn that another orchestrator took over has the same.
package coordination

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// End is who works next when the turn has an answer, or a question: nobody.
const End = "END"

// State is what is known of a turn at a moment. It is a value: what comes behind it makes another.
type State struct {
	Messages            []conversation.Message // that the turn can see
	SessionID           string
	NextAgent           string // who works next; empty: that is not decided yet
	LastAgent           string // who worked last; empty: nobody
	ClarificationNeeded bool
	ClarificationCount  int      // questions of one agent, one after the other, of the turns before included
	MissingContext      []string // what was asked for
	Context             Context
	Iteration           int     // agents that worked
	FinalAnswer         *string // nil: none yet
	ConfidenceScore     *float64

	entry string // the agent with which the turn begins
	asked map[string]int
}

// Context is what agents found.
type Context struct {
	Observations []string
	PDFResults   []string // of those the ones from documents
	WebResults   []string // and from the web
	ToolHistory  []string // tools that were called, each once
}

// sources are where tools look.
var sources = map[string]func(*Context) *[]string{
	"search_documents": func(c *Context) *[]string { return &c.PDFResults },
	"pdf_retrieval":    func(c *Context) *[]string { return &c.PDFResults },
	"web_search":       func(c *Context) *[]string { return &c.WebResults },
}

// Turn is what a turn begins with.
type Turn struct {
	SessionID string
	Number    int                    // in the session
	Entry     string                 // the agent with which it begins; empty: the one that its plan names
	Messages  []conversation.Message // that it can see, those of its own included
	Inherited []execution.Result     // steps of the earlier turn that it continues
}

// Start is the state with which a turn begins (RA-3). Of the turns before, it knows who spoke last;
// their answers are not its own (RA-26).
func Start(t Turn) State {
	s := State{
		Messages: t.Messages, SessionID: t.SessionID, NextAgent: t.Entry, entry: t.Entry, MissingContext: []string{},
		Context: Context{Observations: []string{}, PDFResults: []string{}, WebResults: []string{}, ToolHistory: []string{}},
	}
	s.LastAgent, s.asked = lastSpeaker(t)
	for _, r := range t.Inherited {
		s = s.withResult(r)
	}
	return s
}

// lastSpeaker is who spoke last before a turn, and how often without another in between.
func lastSpeaker(t Turn) (agent string, times map[string]int) {
	n := 0
	for _, m := range slices.Backward(t.Messages) {
		if m.Turn >= t.Number || m.Role != conversation.RoleAssistant {
			continue
		}
		if agent != "" && m.Author != agent {
			break
		}
		agent = m.Author
		n++
	}
	return agent, map[string]int{agent: n}
}

// Apply is the state behind events of the turn.
func (s State) Apply(events ...*troupev1.Event) State {
	for _, e := range events {
		switch p := e.GetPayload().(type) {
		case *troupev1.Event_Plan:
			if s.entry == "" {
				s.entry, s.NextAgent = p.Plan.GetEntry(), p.Plan.GetEntry()
			}
		case *troupev1.Event_RoutingDecision:
			s = s.withDecision(p.RoutingDecision)
		case *troupev1.Event_StepFinished:
			s = s.withResult(wire.ResultFromProto(p.StepFinished.GetResult()))
		case *troupev1.Event_TurnResult:
			s = s.withAnswer(p.TurnResult)
		}
	}
	return s
}

// withDecision says who works next. A rule that decides before anybody has worked does so in the place of
// the first agent, whose turn it was (RA-8, RA-12).
func (s State) withDecision(d *troupev1.RoutingDecision) State {
	if s.Iteration == 0 && d.GetStrategy() == troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE {
		s.Iteration, s.LastAgent = 1, s.entry
	}
	s.NextAgent = d.GetTarget()
	return s
}

// withResult counts an agent that worked, also one that failed (RA-12, RA-17, RA-26).
func (s State) withResult(r execution.Result) State {
	s.Iteration++
	s.LastAgent = r.Agent
	if s.NextAgent == r.Agent {
		s.NextAgent = r.NextAgent
	}
	found := s.Context
	found.Observations = slices.Concat(found.Observations, r.Observations)
	for _, o := range r.Observations {
		tool, _, _ := strings.Cut(strings.TrimPrefix(o, "Used tool: "), "\n")
		if list := sources[tool]; list != nil {
			*list(&found) = append(slices.Clip(*list(&found)), o)
		}
	}
	found.ToolHistory = slices.Clone(found.ToolHistory)
	for _, tool := range r.ToolsCalled {
		if !slices.Contains(found.ToolHistory, tool) {
			found.ToolHistory = append(found.ToolHistory, tool)
		}
	}
	s.Context = found
	if r.InputRequired && len(r.Pending) == 0 { // a question; calls that wait are none
		s.ClarificationNeeded, s.ClarificationCount = true, s.asked[r.Agent]+1
		s.MissingContext = append(slices.Clip(s.MissingContext), r.Text)
	}
	return s
}

// withAnswer says what came of the turn. A question is an answer here (RA-13).
func (s State) withAnswer(r *troupev1.TurnResult) State {
	if r.GetFailure() != nil {
		return s
	}
	text := r.GetText()
	s.NextAgent, s.FinalAnswer, s.ConfidenceScore = End, &text, r.Confidence
	return s
}
