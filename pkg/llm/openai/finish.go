package openai

import (
	"context"
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/pkg/llm"
)

// finishReasons maps the documented finish reasons of the servers to those of package llm. An answer with calls ends
// with FinishCalls, whether its reason is "stop" or "tool_calls".
var finishReasons = map[string]llm.Finish{
	"stop": llm.FinishStop, "tool_calls": llm.FinishCalls, "function_call": llm.FinishCalls, "length": llm.FinishLength,
	"eos":                           llm.FinishStop,   // https://docs.together.ai/reference/chat-completions-1
	"eos_token":                     llm.FinishStop,   // https://huggingface.co/docs/text-generation-inference, and the next one
	"stop_sequence":                 llm.FinishStop,   //
	"model_length":                  llm.FinishLength, // https://docs.mistral.ai/api/endpoint/chat
	"model_context_window_exceeded": llm.FinishLength, // https://docs.z.ai/api-reference/llm/chat-completion
}

// failureReasons maps the finish reasons of answers that the server stopped to the kinds of their errors.
var failureReasons = map[string]llm.Kind{
	"content_filter":               llm.ContentFiltered,
	"sensitive":                    llm.ContentFiltered, // https://docs.z.ai/api-reference/llm/chat-completion
	"network_error":                llm.Unavailable,     //
	"error":                        llm.Unavailable,     // https://openrouter.ai/docs/api/reference/streaming, and Mistral
	"abort":                        llm.Unavailable,     // https://docs.vllm.ai
	"insufficient_system_resource": llm.Unavailable,     // https://api-docs.deepseek.com/api/create-chat-completion
}

// failureKind returns the kind of error for a finish reason (empty if an answer ends with this reason). A model of
// Google fails with a malformed call as it does behind its own API: the same request often succeeds when it is sent
// again. Its OpenAI format prefixes the reason (https://github.com/coder/coder/pull/28470), and OpenRouter reports it
// as the native one (https://github.com/vellum-ai/vellum-assistant/pull/43134).
func failureKind(reason, native string) llm.Kind {
	switch {
	case strings.HasPrefix(reason, "function_call_filter"), native == "MALFORMED_FUNCTION_CALL", native == "UNEXPECTED_TOOL_CALL":
		return llm.Unavailable
	}
	return failureReasons[strings.ToLower(reason)]
}

// finishReason returns why a complete answer ended.
func (r *reply) finishReason() llm.Finish {
	finish, known := finishReasons[strings.ToLower(r.finish)]
	switch {
	case r.finish != "" && !known:
		return llm.FinishOther
	case finish == llm.FinishLength:
		return llm.FinishLength
	case len(r.calls) > 0:
		return llm.FinishCalls
	case r.hasRefusal:
		return llm.FinishRefusal
	}
	return llm.FinishStop
}

// finish yields the end of a reply. It yields an error if the answer is incomplete, or if the server stopped it.
// incomplete says why, for an answer that has neither a finish reason nor the last event of a stream.
func (m *model) finish(ctx context.Context, r *reply, done bool, incomplete error, yield func(llm.Delta, error) bool) {
	if thought, answer := r.think.flush(); thought+answer != "" {
		r.noteThought(thought, formTag)
		if !yield(llm.Delta{Text: answer, Thought: thought}, nil) {
			return
		}
	}
	var err error
	if kind := failureKind(r.finish, r.nativeFinish); kind != "" {
		err = m.source.NewError(kind, errors.New("finish_reason is "+strings.TrimSpace(r.finish+" "+r.nativeFinish)))
	} else if r.finish == "" && !done {
		err = m.source.NewConnectionError(ctx, incomplete)
	}
	r.yieldLast(err, yield)
}
