package gemini

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
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

// transport adapts responses for the SDK, which fails on comments and on the web pages of proxies.
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
	res.Body = &eventReader{Closer: res.Body, lines: bufio.NewReader(res.Body), exchange: x}
	return res, nil
}

// eventReader reads an event stream. It removes comments, which the SDK would treat as errors, and carriage
// returns. It ends with io.EOF where the stream breaks.
type eventReader struct {
	io.Closer
	lines     *bufio.Reader
	exchange  *exchange
	unread    []byte // filtered bytes that Read has not returned yet
	err       error  // why the stream ended (nil while it is open)
	inEvent   bool   // inside an event, which the next empty line ends
	inLine    bool   // inside a line that is longer than the buffer of lines
	keepsLine bool   // the current line is passed on
}

// Read implements io.Reader.
func (e *eventReader) Read(p []byte) (int, error) {
	for len(e.unread) == 0 {
		if e.err != nil {
			return 0, io.EOF
		}
		line, err := e.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			e.err = err
		}
		if e.err != nil && !errors.Is(e.err, io.EOF) {
			e.exchange.streamErr = e.err
		}
		e.unread = e.filterLine(line)
	}
	n := copy(p, e.unread)
	e.unread = e.unread[n:]
	return n, nil
}

// filterLine returns the part of a line that the SDK may read.
func (e *eventReader) filterLine(line []byte) []byte {
	if len(line) == 0 {
		return nil
	}
	if !e.inLine {
		empty := len(bytes.TrimRight(line, "\r\n")) == 0
		e.keepsLine = e.inEvent || !empty
		if line[0] == ':' {
			e.keepsLine = false
		} else {
			e.inEvent = !empty
		}
	}
	e.inLine = line[len(line)-1] != '\n'
	if !e.keepsLine {
		return nil
	}
	if !e.inLine {
		line = append(bytes.TrimRight(line, "\r\n"), '\n')
	}
	return line
}
