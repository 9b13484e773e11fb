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

// exchange holds what the SDK hides about a request: the body of an error response, and the error that broke the
// response, which the SDK would write to the log of the process.
type exchange struct {
	refused  error
	answered bool
	broken   error
}

type exchangeKey struct{}

// with returns a context with which the transport fills x.
func (x *exchange) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// transport repairs responses for the SDK, which fails at comments and at the web pages of proxies.
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
	if res.StatusCode >= http.StatusBadRequest { // the SDK would read all of it
		x.refused = responseError(t.source, res)
		return nil, errors.New("the provider refused")
	}
	x.answered = true
	res.Body = &events{Closer: res.Body, lines: bufio.NewReader(res.Body), exchange: x}
	return res, nil
}

// events reads an event stream without its comments, which the SDK would take for errors, and with plain line
// ends. It ends where the stream breaks.
type events struct {
	io.Closer
	lines    *bufio.Reader
	exchange *exchange
	rest     []byte // read, and not yet handed on
	end      error  // of the stream
	inside   bool   // an event, which the next empty line ends
	middle   bool   // of a line that is longer than the reader holds
	kept     bool   // that line, so far
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

// keep returns the part of a line that the SDK may read.
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
