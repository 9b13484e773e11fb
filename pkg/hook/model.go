package hook

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// LLMRequest is the next request to the model. Its messages are the messages of the turn; change them with Add and Replace.
type LLMRequest struct {
	*Turn
	System string
	Tools  []llm.ToolSpec // that the model may ask for; set another slice, do not change this one
	// Quiet holds back the model's text until the handlers of AfterLLM have run. It is then emitted in one piece, as
	// they leave it.
	Quiet bool
	Reply *LLMReply // set by Respond
}

// Respond answers instead of the model, which is then not called (AD-31).
func (r *LLMRequest) Respond(text string, calls ...conversation.ToolCall) {
	r.Reply = &LLMReply{Turn: r.Turn, Text: text, ToolCalls: calls}
}

// LLMReply is the reply of the model. The tools in ToolCalls run, as the handlers leave them. Without any, the
// text is the answer.
type LLMReply struct {
	*Turn
	Text      string
	ToolCalls []conversation.ToolCall
	Usage     execution.Usage // of this call
	Replayed  bool            // from the journal of an earlier attempt
}

// LLMFailure is a call of the model that failed.
type LLMFailure struct {
	*Turn
	Err   error
	Reply *LLMReply // set by Respond
}

// Respond answers instead of the model; the turn continues (AD-31).
func (f *LLMFailure) Respond(text string) { f.Reply = &LLMReply{Turn: f.Turn, Text: text} }

// Agent describes an agent to OnAgentReady.
type Agent struct {
	Name, Description, Version string
	Model                      string
	Tools                      []string
}
