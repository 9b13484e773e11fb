// Package coordination computes the state that the agents of a turn share through their orchestrator (contract
// RA-2, SO-10). The state is not stored. It follows from the history, the decisions and the results. So an
// orchestrator that takes over the turn computes the same state.
package coordination

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// End is the value of NextAgent once the turn has an answer or a question.
const End = "END"

// State is the coordination state at one moment. It is a value: Apply returns a new State.
type State struct {
	Messages            []conversation.Message // messages that the turn can see
	SessionID           string
	NextAgent           string // agent that works next (empty until it is decided)
	LastAgent           string // agent that worked last (empty if none did)
	ClarificationNeeded bool
	ClarificationCount  int      // how many questions one agent asked in a row, earlier turns included
	MissingContext      []string // questions to the user
	Context             Context
	Iteration           int     // number of steps that agents worked on
	FinalAnswer         *string // answer of the turn (nil until there is one)
	ConfidenceScore     *float64

	entryAgent     string // the first agent of the turn
	questionCounts map[string]int
}

// Context holds what the agents found during the turn.
type Context struct {
	Observations []string
	PDFResults   []string // the observations that come from documents
	WebResults   []string // the observations that come from the web
	ToolHistory  []string // names of the called tools, each once
}

// observationLists maps the name of a search tool to the list in Context that collects its observations.
var observationLists = map[string]func(*Context) *[]string{
	"search_documents": func(c *Context) *[]string { return &c.PDFResults },
	"pdf_retrieval":    func(c *Context) *[]string { return &c.PDFResults },
	"web_search":       func(c *Context) *[]string { return &c.WebResults },
}

// Turn holds the data of a turn that Start needs.
type Turn struct {
	SessionID  string
	Number     int                    // number of the turn in the session, from 1
	EntryAgent string                 // the first agent of the turn (empty means the entry of its plan)
	Messages   []conversation.Message // messages that the turn can see, its own included
	Inherited  []execution.Result     // results of the earlier turn that it continues
}

// Start returns the initial state of a turn (RA-3). It includes which agent spoke last in earlier turns, but not
// the answers of those turns (RA-26).
func Start(t Turn) State {
	s := State{
		Messages: t.Messages, SessionID: t.SessionID, NextAgent: t.EntryAgent, entryAgent: t.EntryAgent, MissingContext: []string{},
		Context: Context{Observations: []string{}, PDFResults: []string{}, WebResults: []string{}, ToolHistory: []string{}},
	}
	s.LastAgent, s.questionCounts = lastSpeaker(t)
	for _, r := range t.Inherited {
		s = s.withResult(r)
	}
	return s
}

// lastSpeaker returns the agent that spoke last before the turn, and how many messages in a row that agent sent.
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

// Apply returns the state after the given events of the turn have been applied.
func (s State) Apply(events ...*troupev1.Event) State {
	for _, e := range events {
		switch p := e.GetPayload().(type) {
		case *troupev1.Event_Plan:
			if s.entryAgent == "" {
				s.entryAgent, s.NextAgent = p.Plan.GetEntry(), p.Plan.GetEntry()
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

// withDecision sets the next agent. A rule may decide before any agent has worked. Such a rule replaces the first
// agent, so it counts as an iteration of the first agent (RA-8, RA-12).
func (s State) withDecision(d *troupev1.RoutingDecision) State {
	if s.Iteration == 0 && d.GetStrategy() == troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE {
		s.Iteration, s.LastAgent = 1, s.entryAgent
	}
	s.NextAgent = d.GetTarget()
	return s
}

// withResult adds the result of an agent that worked or failed (RA-12, RA-17, RA-26).
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
		if list := observationLists[tool]; list != nil {
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
	if r.InputRequired && len(r.Pending) == 0 { // a question to the user; a pending call is not a question
		s.ClarificationNeeded, s.ClarificationCount = true, s.questionCounts[r.Agent]+1
		s.MissingContext = append(slices.Clip(s.MissingContext), r.Text)
	}
	return s
}

// withAnswer sets the final answer. A question to the user counts as an answer here (RA-13).
func (s State) withAnswer(r *troupev1.TurnResult) State {
	if r.GetFailure() != nil {
		return s
	}
	text := r.GetText()
	s.NextAgent, s.FinalAnswer, s.ConfidenceScore = End, &text, r.Confidence
	return s
}
