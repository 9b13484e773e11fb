package builtin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html/charset"

	"github.com/troupe-dev/troupe/internal/egress"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// HTTPFetch is the name of the tool that reads a web page.
const HTTPFetch = "http_fetch"

// Limits of the text of a page that the model gets, in bytes.
const (
	defaultTextBytes = 32 << 10
	maxTextBytes     = tool.MaxResult
)

// fetchSettings has the settings under "with". Package egress documents the fields that restrict where the tool
// may connect.
type fetchSettings struct {
	Hosts               []string `yaml:"hosts"`
	PlainHTTP           []string `yaml:"plainHTTP"`
	Ports               []int    `yaml:"ports"`
	AllowInnerAddresses []string `yaml:"allowInnerAddresses"`
	MaxBytes            int      `yaml:"maxBytes"` // limit of the text that the model gets (0 means defaultTextBytes)
}

// fetchArguments has the arguments of a call.
type fetchArguments struct {
	URL string `json:"url" jsonschema:"the address of the page, such as https://example.com/page"`
}

// fetch implements the HTTPFetch tool. It keeps connections open until Close.
type fetch struct {
	tool.Tool

	client   *http.Client
	maxBytes int
}

func newFetch(s fetchSettings) (tool.Tool, error) {
	f := &fetch{maxBytes: cmp.Or(s.MaxBytes, defaultTextBytes)}
	if f.maxBytes < 1 || f.maxBytes > maxTextBytes {
		return nil, failure.Newf(failure.UserInvalidInput, "builtin.Tool", "with.maxBytes is %d; use 1 to %d, or leave it out for %d",
			s.MaxBytes, maxTextBytes, defaultTextBytes)
	}
	networks, err := egress.ParseNetworks(s.AllowInnerAddresses)
	if err == nil {
		f.client, err = egress.New(egress.Config{
			Hosts: s.Hosts, PlainHTTP: s.PlainHTTP, Ports: s.Ports, AllowInnerAddresses: networks,
		})
	}
	if err != nil {
		return nil, failure.Newf(failure.UserInvalidInput, "builtin.Tool", "with.%s", failure.PlainMessage(err))
	}
	f.Tool, err = tool.Func(HTTPFetch,
		"Reads a page of the web and returns its text. These hosts can be asked: "+strings.Join(s.Hosts, ", ")+".", f.fetchPage)
	return f, err
}

// Effect implements tool.Effector. A GET request changes nothing.
func (f *fetch) Effect() execution.Effect { return execution.Read }

// Scope implements tool.Scoper. Strangers write the pages, and their servers log what is requested.
func (f *fetch) Scope() tool.Scope { return tool.Scope{Untrusted: true, Egress: true} }

// Start implements tool.Starter.
func (f *fetch) Start(context.Context) error { return nil }

// Close closes idle connections.
func (f *fetch) Close() error {
	f.client.CloseIdleConnections()
	return nil
}

// fetchPage returns the text of a page. For HTML this is the text that a reader sees. For other text formats it is
// everything.
func (f *fetch) fetchPage(ctx context.Context, in fetchArguments) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.URL, nil)
	if err != nil {
		return "", failure.New(failure.AgentValidation, HTTPFetch, "the url cannot be read; write it as https://host/path").Because(err)
	}
	req.Header.Set("Accept", "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1")
	req.Header.Set("User-Agent", "troupe")
	resp, err := f.client.Do(req)
	if err != nil {
		return "", f.explainError(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // everything that is needed was read
	if resp.StatusCode != http.StatusOK {
		return "", fetchError("the server answered %d %s; try another address", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // an invalid type is detected from the content
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", f.explainError(ctx, err)
	}
	if kind == "" {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(body))
	}
	if !isText(kind) {
		return "", fetchError("the page is %s, which has no text; try another address", kind)
	}
	text, err := decodeUTF8(body, resp.Header.Get("Content-Type"))
	if err != nil {
		return "", fetchError("the page has characters that cannot be read").Because(err)
	}
	if kind == "text/html" || kind == "application/xhtml+xml" {
		text = pageText(text, resp.Request.URL)
	}
	return f.truncate(text), nil
}

func fetchError(format string, args ...any) *failure.Error {
	return failure.Newf(failure.ResourceTool, HTTPFetch, format, args...)
}

// explainError rewrites an error of the HTTP client for a model, without the prefixes of net/http.
func (f *fetch) explainError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return fetchError("the server did not answer within %s; try again later", egress.DefaultTimeout).Because(err)
		}
		err = e.Err
	}
	return fetchError("the page cannot be had: %s", err).Because(err)
}

func isText(kind string) bool {
	switch kind {
	case "application/json", "application/xml", "application/xhtml+xml", "application/javascript", "application/yaml":
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml")
}

// decodeUTF8 converts a page to UTF-8.
func decodeUTF8(body []byte, contentType string) (string, error) {
	r, err := charset.NewReader(bytes.NewReader(body), contentType)
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return strings.ToValidUTF8(string(text), "\uFFFD"), err
}

func (f *fetch) truncate(text string) string {
	if len(text) <= f.maxBytes {
		return text
	}
	return conversation.Truncate(text, f.maxBytes) + fmt.Sprintf("\n… (cut: the page has %d bytes of text)", len(text))
}
