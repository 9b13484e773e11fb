package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/tmaxmax/go-sse"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// chunk is one event of a stream, in the fields that matter.
type chunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Delta struct {
			Content   string  `json:"content"`
			Refusal   string  `json:"refusal"`
			ToolCalls []piece `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

// piece is a part of a tool call.
type piece struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content"` // wanted back with the call (CO-11)
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	Cost float64 `json:"cost"` // in US dollars; OpenRouter tells it
}

// reply is what a stream has said so far.
type reply struct {
	calls   []*call
	usage   usage
	finish  string
	refused bool // in the model's own words
}

// call is a tool call that grows.
type call struct {
	piece
	arguments strings.Builder
}

// maxEvent bounds one event of a stream, in bytes.
const maxEvent = 32 << 20

// endOfStream is the data of the event that ends a stream.
const endOfStream = "[DONE]"

// read yields what a stream says. The answer is complete with a finish reason, or with the event that ends a
// stream: some servers send only one of the two.
func (m *model) read(ctx context.Context, body io.Reader, yield func(llm.Delta, error) bool) {
	var r reply
	done := false
	err := errors.New("the stream ended before the answer did")
	for event, readErr := range sse.Read(body, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		if readErr != nil {
			err = readErr
			break
		}
		if event.Data == "" {
			continue
		}
		if done = strings.HasPrefix(event.Data, endOfStream); done {
			break
		}
		data := []byte(event.Data)
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			r.end(m.source.Fail(llm.Malformed, err), yield)
			return
		}
		if len(c.Error) > 0 && !bytes.Equal(c.Error, []byte("null")) {
			r.end(m.interrupted(data), yield)
			return
		}
		if text := r.take(c); text != "" && !yield(llm.Delta{Text: text}, nil) {
			return
		}
	}
	switch {
	case r.finish == "content_filter":
		err = m.source.Fail(llm.Refused, errors.New("finish_reason is content_filter"))
	case r.finish == "" && !done:
		err = m.source.Broken(ctx, err)
	default:
		err = nil
	}
	r.end(err, yield)
}

// take adds a chunk, and returns the text in it.
func (r *reply) take(c chunk) (text string) {
	if c.Usage != nil {
		r.usage = *c.Usage // of the whole request so far, where it comes more than once
	}
	for _, choice := range c.Choices {
		text += choice.Delta.Content + choice.Delta.Refusal
		r.refused = r.refused || choice.Delta.Refusal != ""
		for _, p := range choice.Delta.ToolCalls {
			r.add(p)
		}
		r.finish = cmp.Or(choice.FinishReason, r.finish)
	}
	return text
}

// add puts a piece to its call. It begins another call when there is none with its index, or
// that one has another id: some servers number all calls of an answer alike.
func (r *reply) add(p piece) {
	var c *call
	for _, known := range r.calls {
		if known.Index == p.Index {
			c = known
		}
	}
	if c == nil || p.ID != "" && c.ID != "" && p.ID != c.ID {
		c = &call{piece: p}
		r.calls = append(r.calls, c)
	}
	c.ID = cmp.Or(c.ID, p.ID)
	c.Function.Name = cmp.Or(c.Function.Name, p.Function.Name)
	c.arguments.WriteString(p.Function.Arguments)
	if len(p.Extra) > 0 {
		c.Extra = p.Extra
	}
}

// end yields the last delta: the calls and the finish reason of a complete answer, or the error of an incomplete one. It
// always reports the usage.
func (r *reply) end(err error, yield func(llm.Delta, error) bool) {
	d := llm.Delta{Usage: r.consumed()}
	if err == nil {
		d.Finish = r.reason()
		for _, c := range r.calls {
			d.ToolCalls = append(d.ToolCalls, conversation.ToolCall{
				ID: c.ID, Name: c.Function.Name, Arguments: cmp.Or(c.arguments.String(), "{}"), Extra: string(c.Extra),
			})
		}
	}
	if (err == nil || d.Usage != execution.Usage{}) && !yield(d, nil) {
		return
	}
	if err != nil {
		yield(llm.Delta{}, err)
	}
}

func (r *reply) reason() llm.Finish {
	switch {
	case r.finish == "length":
		return llm.FinishLength
	case len(r.calls) > 0:
		return llm.FinishCalls
	case r.refused:
		return llm.FinishRefusal
	}
	return llm.FinishStop
}

func (r *reply) consumed() execution.Usage {
	return execution.Usage{
		InputTokens: r.usage.Prompt, OutputTokens: r.usage.Completion,
		CachedTokens: r.usage.Details.Cached, CacheWriteTokens: r.usage.Details.Written,
		CostMicros: int64(math.Round(r.usage.Cost * 1e6)),
	}
}
