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

// exchange holds facts about a request that the SDK hides: the error in an error response, and the error that
// broke the response, which the SDK would write to the log of the process.
type exchange struct {
	refused  error
	answered bool
	broken   error
}

type exchangeKey struct{}

// newContext returns a context that makes transport fill x.
func (x *exchange) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
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
		x.refused = responseError(t.source, res)
		return nil, errors.New("the provider rejected the request")
	}
	x.answered = true
	res.Body = &events{Closer: res.Body, lines: bufio.NewReader(res.Body), exchange: x}
	return res, nil
}

// eventReader reads an event stream. It removes comments, which the SDK would treat as errors, and carriage
// returns. It ends with io.EOF where the stream breaks.
type events struct {
	io.Closer
	lines    *bufio.Reader
	exchange *exchange
	rest     []byte // filtered bytes that Read has not returned yet
	end      error  // why the stream ended (nil while it is open)
	inside   bool   // inside an event, which the next empty line ends
	middle   bool   // inside a line that is longer than the buffer of lines
	kept     bool   // the current line is passed on
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.end != nil {
			return 0, io.EOF
		}
		line, err := e.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			e.end = err
		}
		if e.end != nil && !errors.Is(e.end, io.EOF) {
			e.exchange.broken = e.end
		}
		e.rest = e.keep(line)
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// filterLine returns the part of a line that the SDK may read.
func (e *events) keep(line []byte) []byte {
	if len(line) == 0 {
		return nil
	}
	if !e.middle {
		empty := len(bytes.TrimRight(line, "\r\n")) == 0
		e.kept = e.inside || !empty
		if line[0] == ':' {
			e.kept = false
		} else {
			e.inside = !empty
		}
	}
	e.middle = line[len(line)-1] != '\n'
	if !e.kept {
		return nil
	}
	if !e.middle {
		line = append(bytes.TrimRight(line, "\r\n"), '\n')
	}
	return line
}
