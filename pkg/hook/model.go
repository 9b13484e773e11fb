package hook

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// LLMRequest is what the model is about to be asked. The messages are those of the turn:
// Add and Replace change them.
type LLMRequest struct {
	*Turn
	System string
	Tools  []llm.ToolSpec // that the model may ask for; set another slice, do not change this one
	// Quiet holds back what the model says until the handlers of AfterLLM have seen it: it is
	// told in one piece then, as they leave it.
	Quiet bool
	Reply *LLMReply // set by Respond
}

// Respond answers in place of the model, which is not asked then (AD-31).
func (r *LLMRequest) Respond(text string, calls ...conversation.ToolCall) {
	r.Reply = &LLMReply{Turn: r.Turn, Text: text, ToolCalls: calls}
}

// LLMReply is what the model said. The tools that run are those of ToolCalls as the handlers
// leave them; without any the text is the answer.
type LLMReply struct {
	*Turn
	Text      string
	ToolCalls []conversation.ToolCall
	Usage     execution.Usage // of this call
	Replayed  bool            // said to a worker that was lost
}

// LLMFailure is a call of the model that failed.
type LLMFailure struct {
	*Turn
	Err   error
	Reply *LLMReply // set by Respond
}

// Respond answers in place of the model; the turn goes on (AD-31).
func (f *LLMFailure) Respond(text string) { f.Reply = &LLMReply{Turn: f.Turn, Text: text} }

// Agent is what OnAgentReady is told.
type Agent struct {
	Name, Description, Version string
	Model                      string
	Tools                      []string
}
