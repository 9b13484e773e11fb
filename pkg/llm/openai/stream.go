package openai

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/tmaxmax/go-sse"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// reply holds the answer of the model while it arrives.
type reply struct {
	server       string // provider that answers
	calls        []*call
	usage        usage
	finish       string
	nativeFinish string
	hasRefusal   bool // the model declined in a refusal text
	hasMessage   bool // a choice had the whole message
	think        thinkSplitter

	reasoning extra // the thoughts so far
	thoughts  strings.Builder
}

// call is a tool call whose arguments are still arriving.
type call struct {
	callPiece
	arguments strings.Builder
}

// maxEventBytes limits the size of one event of a stream, and of an answer that is not streamed.
const maxEventBytes = 32 << 20

// endOfStream is the data of the event that ends a stream.
const endOfStream = "[DONE]"

// readResponse yields the answer in a response. If the server ignores the request for a stream, the response is
// one JSON object. Its content type says so on most servers, but not on all
// (https://github.com/decolua/9router/issues/3492).
func (m *model) readResponse(ctx context.Context, res *http.Response, yield func(llm.Delta, error) bool) {
	body := bufio.NewReader(res.Body)
	for {
		first, err := body.Peek(1)
		if err != nil || !bytes.ContainsAny(first, " \t\r\n") {
			break
		}
		_, _ = body.Discard(1)
	}
	if first, _ := body.Peek(1); string(first) == "{" {
		m.readUnstreamed(ctx, body, yield)
		return
	}
	m.readStream(ctx, body, yield)
}

// readStream yields a streamed answer. The answer is complete after a finish reason or after the last event of the
// stream, because some servers send only one of the two.
func (m *model) readStream(ctx context.Context, body io.Reader, yield func(llm.Delta, error) bool) {
	r := reply{server: m.source.Provider}
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
		if !m.readChunk(&r, []byte(event.Data), yield) {
			return
		}
	}
	m.finish(ctx, &r, done, err, yield)
}

// readChunk yields the text of a chunk. It returns false if the answer has ended, or the consumer has stopped.
func (m *model) readChunk(r *reply, data []byte, yield func(llm.Delta, error) bool) bool {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		r.yieldLast(m.source.NewError(llm.Malformed, err), yield)
		return false
	}
	if c.isError() {
		r.yieldLast(m.streamError(data), yield)
		return false
	}
	d := r.addChunk(c)
	return d == (textDelta{}) || yield(llm.Delta{Text: d.text, Thought: d.thought}, nil)
}

// readUnstreamed yields an answer that is not streamed. It ignores what follows the JSON object.
func (m *model) readUnstreamed(ctx context.Context, body io.Reader, yield func(llm.Delta, error) bool) {
	r := reply{server: m.source.Provider}
	var document json.RawMessage
	err := json.NewDecoder(io.LimitReader(body, maxEventBytes)).Decode(&document)
	if _, invalid := errors.AsType[*json.SyntaxError](err); invalid || errors.Is(err, io.ErrUnexpectedEOF) {
		r.yieldLast(m.source.NewError(llm.Malformed, err), yield)
		return
	}
	if err != nil {
		r.yieldLast(m.source.NewConnectionError(ctx, err), yield)
		return
	}
	if m.readChunk(&r, document, yield) {
		m.finish(ctx, &r, r.hasMessage, errors.New("the answer has no choices"), yield)
	}
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
		switch {
		case choice.Delta != nil:
			r.addOutput(*choice.Delta, &d)
		case choice.Message != nil:
			r.hasMessage = true
			r.addOutput(*choice.Message, &d)
		}
		r.finish = cmp.Or(choice.FinishReason.text, r.finish)
		r.nativeFinish = cmp.Or(choice.NativeFinishReason.text, r.nativeFinish)
	}
	return d
}

// addOutput adds a part of the message, and its text to d.
func (r *reply) addOutput(o output, d *textDelta) {
	thought, form := o.reasoning()
	r.noteThought(thought, form)
	r.reasoning.Details = r.reasoning.Details.add(o.ReasoningDetails)
	d.thought += thought
	for _, text := range o.Content.texts {
		thought, answer := r.think.add(text)
		r.noteThought(thought, formTag)
		d.thought, d.text = d.thought+thought, d.text+answer
	}
	d.text += o.Refusal.text
	r.hasRefusal = r.hasRefusal || o.Refusal.text != ""
	for _, p := range o.ToolCalls {
		r.addCallPiece(p)
	}
	if o.FunctionCall != nil {
		r.addCallPiece(callPiece{Function: *o.FunctionCall})
	}
}

// noteThought keeps a thought for the next request.
func (r *reply) noteThought(thought string, form reasoningForm) {
	if form == "" || form == formTag && thought == "" {
		return
	}
	r.reasoning.Form = form
	r.thoughts.WriteString(thought)
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
	c.arguments.WriteString(string(p.Function.Arguments))
	if len(p.Extra) > 0 {
		c.Extra = p.Extra
	}
}

// yieldLast yields the last delta. For a complete answer it contains the calls and the finish reason. For an
// incomplete answer the error follows. The usage is reported in both cases.
func (r *reply) yieldLast(err error, yield func(llm.Delta, error) bool) {
	d := llm.Delta{Usage: r.totalUsage()}
	if err == nil {
		d.Finish, d.ToolCalls = r.finishReason(), r.toolCalls()
	}
	if (err == nil || d.Usage != execution.Usage{}) && !yield(d, nil) {
		return
	}
	if err != nil {
		yield(llm.Delta{}, err)
	}
}

// toolCalls returns the calls. The first one gets the thoughts that led to them.
func (r *reply) toolCalls() (calls []conversation.ToolCall) {
	r.reasoning.Text = r.thoughts.String()
	for i, c := range r.calls {
		var e extra
		if i == 0 {
			e = r.reasoning
		}
		e.Server, e.Content = r.server, c.Extra
		calls = append(calls, conversation.ToolCall{
			ID: c.ID, Name: c.Function.Name, Arguments: cmp.Or(c.arguments.String(), "{}"), Extra: e.encode(),
		})
	}
	return calls
}

func (r *reply) totalUsage() execution.Usage {
	return execution.Usage{
		InputTokens: r.usage.Prompt, OutputTokens: r.usage.Completion,
		CachedTokens: r.usage.cached(), CacheWriteTokens: r.usage.Details.Written,
		CostMicros: int64(math.Round(r.usage.Cost * 1e6)),
	}
}
