package coordination

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// maxText limits the length of agents' texts in the log, in characters.
const maxText = 200

// Proto converts the state for clients and omits the texts of agents.
func (s State) Proto() *troupev1.Coordination {
	return &troupev1.Coordination{
		NextAgent: s.NextAgent, LastAgent: s.LastAgent, ClarificationNeeded: s.ClarificationNeeded,
		ClarificationCount: int32(s.ClarificationCount), Iteration: int32(s.Iteration), Messages: int32(len(s.Messages)),
		Observations: int32(len(s.Context.Observations)), ToolHistory: s.Context.ToolHistory,
	}
}

// LogFields returns all fields of the state by name, for the log (RA-2, SO-10). It omits the texts of messages,
// logs only the number of observations, and truncates other texts of agents.
func (s State) LogFields() map[string]any {
	messages, missing := []any{}, []any{}
	for _, m := range s.Messages {
		messages = append(messages, map[string]any{"sequence": m.Sequence, "role": string(m.Role), "agent": m.Author})
	}
	for _, asked := range s.MissingContext {
		missing = append(missing, conversation.Excerpt(asked, maxText))
	}
	data := map[string]any{
		"messages": messages, "session_id": s.SessionID, "next_agent": s.NextAgent, "last_agent": s.LastAgent,
		"clarification_needed": s.ClarificationNeeded, "clarification_count": s.ClarificationCount, "missing_context": missing,
		"context": map[string]any{
			"observations": len(s.Context.Observations), "pdf_results": len(s.Context.PDFResults), "web_results": len(s.Context.WebResults),
			"tool_history": s.Context.ToolHistory,
		},
		"iteration": s.Iteration, "final_answer": nil, "confidence_score": nil,
	}
	if s.FinalAnswer != nil {
		data["final_answer"] = conversation.Excerpt(*s.FinalAnswer, maxText)
	}
	if s.ConfidenceScore != nil {
		data["confidence_score"] = *s.ConfidenceScore
	}
	return data
}
