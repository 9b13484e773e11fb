package hook

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// LLMRequest is the next request to the model. It sends the messages of the turn, which Add and Replace change.
type LLMRequest struct {
	*Turn
	System string
	Tools  []llm.ToolSpec // tools that the model may call; replace the slice, do not modify it
	// Quiet holds back the model's text until the AfterLLM handlers have changed it. It is then emitted in one piece.
	Quiet bool
	Reply *LLMReply // set by Respond
}

// Respond sets the reply, so that the model is not called (AD-31).
func (r *LLMRequest) Respond(text string, calls ...conversation.ToolCall) {
	r.Reply = &LLMReply{Turn: r.Turn, Text: text, ToolCalls: calls}
}

// LLMReply is the reply of the model. After the handlers have run, its ToolCalls are executed. Without calls, Text is the answer.
type LLMReply struct {
	*Turn
	Text       string
	ToolCalls  []conversation.ToolCall
	Usage      execution.Usage // usage of this model call
	Replayed   bool            // the reply came from the journal of an earlier attempt
	Incomplete event.Finish    // why the reply may be incomplete, as in event.Answer (empty means it is complete)
}

// LLMFailure describes a failed call of the model.
type LLMFailure struct {
	*Turn
	Err   error
	Reply *LLMReply // set by Respond
}

// Respond sets a reply in place of the failed one, and the turn continues (AD-31).
func (f *LLMFailure) Respond(text string) { f.Reply = &LLMReply{Turn: f.Turn, Text: text} }

// Agent describes an agent to OnAgentReady handlers, and to the functions that run when it starts and stops.
type Agent struct {
	Name, Description, Version string
	Model                      string
	Tools                      []string
	State                      *ownership.AgentState // its own values, in RAM
	Config                     *ownership.Config     // the configuration that its instances share; nothing is loaded before Start
}
