package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"

	"github.com/tmaxmax/go-sse"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// reply holds the answer of the model while it arrives.
type reply struct {
	calls      []*call
	usage      usage
	finish     string
	hasRefusal bool // the model declined in a refusal text
	text       surrogateJoiner
	thought    surrogateJoiner
	think      thinkSplitter
}

// call is a tool call whose arguments are still arriving.
type call struct {
	callPiece
	joiner    surrogateJoiner
	arguments strings.Builder
}

// maxEventBytes limits the size of one event of a stream, and of an answer that is not streamed.
const maxEventBytes = 32 << 20

// endOfStream is the data of the event that ends a stream.
const endOfStream = "[DONE]"

// readResponse yields the answer in a response. If the server ignores the request for a stream, the response is
// one JSON object.
func (m *model) readResponse(ctx context.Context, res *http.Response, yield func(llm.Delta, error) bool) {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/json" {
		m.readUnstreamed(ctx, res.Body, yield)
		return
	}
	m.readStream(ctx, res.Body, yield)
}

// readStream yields a streamed answer. The answer is complete after a finish reason or after the last event of the
// stream, because some servers send only one of the two.
func (m *model) readStream(ctx context.Context, body io.Reader, yield func(llm.Delta, error) bool) {
	var r reply
	done := false
	err := errors.New("the stream ended before the answer did")
	for event, readErr := range sse.Read(body, &sse.ReadConfig{MaxEventSize: maxEventBytes}) {
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
			r.yieldLast(m.source.NewError(llm.Malformed, err), yield)
			return
		}
		if isPresent(c.Error) {
			r.yieldLast(m.streamError(data), yield)
			return
		}
		if d := r.addChunk(c); d != (textDelta{}) && !yield(llm.Delta{Text: d.text, Thought: d.thought}, nil) {
			return
		}
	}
	m.finish(ctx, &r, done, err, yield)
}

// readUnstreamed yields an answer that is not streamed.
func (m *model) readUnstreamed(ctx context.Context, body io.Reader, yield func(llm.Delta, error) bool) {
	var r reply
	data, err := io.ReadAll(io.LimitReader(body, maxEventBytes))
	if err != nil {
		r.yieldLast(m.source.NewConnectionError(ctx, err), yield)
		return
	}
	var whole completion
	if err := json.Unmarshal(data, &whole); err != nil {
		r.yieldLast(m.source.NewError(llm.Malformed, err), yield)
		return
	}
	if isPresent(whole.Error) {
		r.yieldLast(m.streamError(data), yield)
		return
	}
	c := chunk{Usage: whole.Usage}
	for _, choice := range whole.Choices {
		c.Choices = append(c.Choices, struct {
			Delta        output `json:"delta"`
			FinishReason string `json:"finish_reason"`
		}{choice.Message, choice.FinishReason})
	}
	if d := r.addChunk(c); d != (textDelta{}) && !yield(llm.Delta{Text: d.text, Thought: d.thought}, nil) {
		return
	}
	m.finish(ctx, &r, len(c.Choices) > 0, errors.New("the answer has no choices"), yield)
}

// finish yields the end of a reply. It yields an error if the answer is incomplete, or if the server stopped it.
func (m *model) finish(ctx context.Context, r *reply, done bool, err error, yield func(llm.Delta, error) bool) {
	if thought, answer := r.think.flush(); thought+answer != "" && !yield(llm.Delta{Text: answer, Thought: thought}, nil) {
		return
	}
	switch r.finish {
	case "":
		if !done {
			err = m.source.NewConnectionError(ctx, err)
			break
		}
		err = nil
	case "content_filter", "sensitive":
		err = m.source.NewError(llm.ContentFiltered, errors.New("finish_reason is "+r.finish))
	case "error", "abort", "insufficient_system_resource":
		err = m.source.NewError(llm.Unavailable, errors.New("finish_reason is "+r.finish))
	default:
		err = nil
	}
	r.yieldLast(err, yield)
}

// isPresent reports whether a JSON field has a value.
func isPresent(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// textDelta is the text that a chunk adds to the answer and to the thoughts.
type textDelta struct{ text, thought string }

// addChunk adds a chunk and returns the text in it.
func (r *reply) addChunk(c chunk) (d textDelta) {
	if c.Usage != nil {
		r.usage = *c.Usage // covers the whole request so far, if it comes more than once
	}
	for _, choice := range c.Choices {
		o := choice.Delta
		d.thought += r.thought.decode(o.reasoningText())
		for _, raw := range o.Content.thoughts {
			d.thought += r.thought.decode(raw)
		}
		for _, raw := range o.Content.texts() {
			thought, answer := r.think.add(r.text.decode(raw))
			d.thought, d.text = d.thought+thought, d.text+answer
		}
		refusal := r.text.decode(o.Refusal)
		d.text += refusal
		r.hasRefusal = r.hasRefusal || refusal != ""
		for _, p := range o.ToolCalls {
			r.addCallPiece(p)
		}
		if o.FunctionCall != nil {
			r.addCallPiece(callPiece{Function: *o.FunctionCall})
		}
		r.finish = cmp.Or(choice.FinishReason, r.finish)
	}
	return d
}

// addCallPiece appends a piece to its call. It begins a new call if no call has the index of the piece. It also
// does so if the ids differ, because some servers give all calls the same index.
func (r *reply) addCallPiece(p callPiece) {
	var c *call
	for _, known := range r.calls {
		if known.Index == p.Index {
			c = known
		}
	}
	if c == nil || p.ID != "" && c.ID != "" && p.ID != c.ID {
		c = &call{callPiece: p}
		r.calls = append(r.calls, c)
	}
	c.ID = cmp.Or(c.ID, p.ID)
	c.Function.Name = cmp.Or(c.Function.Name, p.Function.Name)
	c.arguments.WriteString(argumentsText(&c.joiner, p.Function.Arguments))
	if len(p.Extra) > 0 {
		c.Extra = p.Extra
	}
}

// yieldLast yields the last delta. For a complete answer it contains the calls and the finish reason. For an
// incomplete answer the error follows. The usage is reported in both cases.
func (r *reply) yieldLast(err error, yield func(llm.Delta, error) bool) {
	d := llm.Delta{Usage: r.totalUsage()}
	if err == nil {
		d.Finish = r.finishReason()
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

func (r *reply) finishReason() llm.Finish {
	switch {
	case r.finish == "length":
		return llm.FinishLength
	case len(r.calls) > 0:
		return llm.FinishCalls
	case r.hasRefusal:
		return llm.FinishRefusal
	}
	return llm.FinishStop
}

func (r *reply) totalUsage() execution.Usage {
	return execution.Usage{
		InputTokens: r.usage.Prompt, OutputTokens: r.usage.Completion,
		CachedTokens: r.usage.cached(), CacheWriteTokens: r.usage.Details.Written,
		CostMicros: int64(math.Round(r.usage.Cost * 1e6)),
	}
}
