package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// IdempotencyKey is the field of _meta in which a call sends its idempotency key. The key is the same if the
// successor of a lost worker repeats the call, and different for every other call.
const IdempotencyKey = "troupe.dev/idempotency-key"

// Call implements tool.Tool. An error of the server is resource_tool, with its text and a hint of what the schema
// wants (CO-37). If the server is lost during the call, a tool that may run only once is unknown_outcome, and any
// other resource_tool.
func (r *remoteTool) Call(ctx context.Context, args json.RawMessage) (tool.Result, error) {
	known := r.definition.Load()
	args, err := known.checkArguments(args)
	if err != nil {
		return tool.Result{}, err
	}
	params := &mcp.CallToolParams{Name: r.name, Arguments: args}
	if key := tool.IdempotencyKey(ctx); key != "" {
		params.Meta = mcp.Meta{IdempotencyKey: key}
	}
	result, status, err := r.sendCall(ctx, params)
	if status == http.StatusNotFound && errors.Is(err, mcp.ErrSessionMissing) { // the server lost the session and did not run the tool
		result, status, err = r.sendCall(ctx, params)
	}
	if err != nil {
		return tool.Result{}, r.newNoResultError(ctx, known, status, err, args)
	}
	out := toResult(result)
	if result.IsError {
		return tool.Result{}, r.newCallError(failure.ResourceTool, "says: %s %s", out.Text, known.argumentsHint(args))
	}
	return out, nil
}

// checkArguments returns the arguments as the JSON object to send, or an error if they do not match the schema.
func (d *definition) checkArguments(args json.RawMessage) (json.RawMessage, error) {
	if d.schema != nil {
		return d.schema.Check(d.spec.Name, args)
	}
	if len(args) == 0 {
		return json.RawMessage("{}"), nil
	}
	if !json.Valid(args) {
		return nil, failure.Newf(failure.AgentValidation, "mcptool.Call", "the arguments of %s are not a JSON object", d.spec.Name)
	}
	return args, nil
}

func (d *definition) argumentsHint(args json.RawMessage) string {
	if d.schema == nil {
		return ""
	}
	return d.schema.Hint(args)
}

// sendCall sends the call to the server. status is the HTTP status of the response (0 if there was none).
func (r *remoteTool) sendCall(ctx context.Context, params *mcp.CallToolParams) (_ *mcp.CallToolResult, status int, _ error) {
	l, err := r.server.getLink(ctx)
	if err != nil {
		return nil, 0, &unsentError{err}
	}
	if findTool(l.cachedTools(), r.name) == nil {
		return nil, 0, &unsentError{r.newCallError(failure.NotFound, "is not offered by its server any more; use another one")}
	}
	ctx, cancel := context.WithTimeout(ctx, r.server.config.CallTimeout)
	defer cancel()
	ctx, answered := withStatus(ctx)
	token, forget := l.calls.register(ctx)
	defer forget()
	params.SetProgressToken(token)
	result, err := l.session.CallTool(ctx, params)
	if err != nil && rejectionFromError(err) == nil {
		l.needsPing.Store(true)
	}
	return result, int(answered.Load()), err
}

// unsentError wraps an error that occurred before the request was sent, so the tool has not run.
type unsentError struct{ error }

func (u *unsentError) Unwrap() error { return u.error }

// Error codes that the SDK uses for its own errors. They do not come from a server.
const (
	codeClientClosing = -32003
	codeServerClosing = -32004
	codeNotSent       = -32005
)

// rejectionFromError returns the server's error response to a call that it did not run. It returns nil for any
// other error.
func rejectionFromError(err error) *jsonrpc.Error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code == codeClientClosing || e.Code == codeServerClosing || e.Code == codeNotSent {
		return nil
	}
	return e
}

// newNoResultError returns the tool error for a call that got no result. It says whether the tool may have run.
func (r *remoteTool) newNoResultError(ctx context.Context, known *definition, status int, err error, args json.RawMessage) error {
	if u, ok := errors.AsType[*unsentError](err); ok {
		return u.error
	}
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e // from package egress: the request was not sent
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e := rejectionFromError(err); e != nil {
		return r.newCallError(failure.ResourceTool, "was rejected by its server: %s %s", e.Message, known.argumentsHint(args)).Because(err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return r.newCallError(failure.ResourceTool, "was not called: its server cannot be reached; try again later").Because(err)
	}
	if status >= 400 && status < 500 {
		return r.newCallError(failure.ResourceTool, "was rejected by its server: %d %s", status, http.StatusText(status)).Because(err)
	}
	var what string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		what = fmt.Sprintf("did not answer within %s and was cancelled", r.server.config.CallTimeout)
	case errors.Is(err, io.EOF), errors.Is(err, mcp.ErrConnectionClosed):
		what = "lost its server while it ran"
	default:
		what = "got no proper answer from its server"
	}
	if known.effect == execution.AtMostOnce {
		return r.newCallError(failure.UnknownOutcome,
			"%s: whether it took effect is unknown. Find out in another way before you call it again, or ask the user", what).Because(err)
	}
	return r.newCallError(failure.ResourceTool, "%s; it does no harm to call it again", what).Because(err)
}

func (r *remoteTool) newCallError(mode failure.Mode, format string, args ...any) *failure.Error {
	return failure.Newf(mode, "mcptool.Call", "the tool "+r.publicName+" "+format, args...)
}
