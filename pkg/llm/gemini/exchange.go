package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/troupe-dev/troupe/pkg/llm"
)

// exchange holds what the SDK hides about a request. The transport fills it.
type exchange struct {
	responseErr error // error in the body of an error response (nil if there is none)
	hasResponse bool  // the provider accepted the request and has begun to answer
	streamErr   error // why reading the answer failed; the SDK would only write it to the log of the process
}

type exchangeKey struct{}

// newContext returns a context that makes the transport fill e.
func (e *exchange) newContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// transport adapts responses for the SDK, which fails on the web pages of proxies and on answers that are not
// streamed.
type transport struct {
	next   http.RoundTripper
	source llm.Source
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if err != nil || !ok {
		return res, err
	}
	if res.StatusCode >= http.StatusBadRequest { // the SDK would read the whole body, which may be huge
		x.responseErr = responseError(t.source, res)
		return nil, errors.New("the provider rejected the request")
	}
	x.hasResponse = true
	res.Body = &streamBody{ReadCloser: res.Body, exchange: x}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/json" {
		res.Body = &unstreamedBody{ReadCloser: res.Body}
	}
	return res, nil
}

// streamBody is a response body that ends with io.EOF where the connection breaks.
type streamBody struct {
	io.ReadCloser
	exchange *exchange
}

// Read implements io.Reader.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.exchange.streamErr, err = err, io.EOF
	}
	return n, err
}

// maxAnswerBytes limits the size of an answer that is not streamed.
const maxAnswerBytes = 32 << 20

// unstreamedBody is a response body with one JSON document, which it turns into a stream of events. A server that
// ignores the request for server-sent events sends the whole answer as one object, or its pieces as a list.
type unstreamedBody struct {
	io.ReadCloser
	events io.Reader // nil until the document was read
}

// Read implements io.Reader.
func (b *unstreamedBody) Read(p []byte) (int, error) {
	if b.events == nil {
		document, err := io.ReadAll(io.LimitReader(b.ReadCloser, maxAnswerBytes))
		if err != nil {
			return 0, err
		}
		b.events = bytes.NewReader(eventsFromDocument(document))
	}
	return b.events.Read(p)
}

// eventsFromDocument returns an event for each object of a JSON document.
func eventsFromDocument(document []byte) []byte {
	var pieces []json.RawMessage
	if json.Unmarshal(document, &pieces) != nil {
		pieces = []json.RawMessage{document}
	}
	var events bytes.Buffer
	for _, piece := range pieces {
		events.WriteString("data: ")
		if json.Compact(&events, piece) != nil { // Compact has written nothing
			events.Write(bytes.Join(bytes.Fields(piece), []byte(" ")))
		}
		events.WriteString("\n\n")
	}
	return events.Bytes()
}
