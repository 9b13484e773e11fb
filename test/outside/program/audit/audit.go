// Package audit is a plugin with a hook that records each tool call, and a Close function.
package audit

import (
	"context"
	"fmt"
	"io"

	"github.com/troupe-dev/troupe/pkg/hook"
)

// New returns a plugin that writes a line for each finished tool call.
func New(w io.Writer) hook.Plugin {
	return hook.Plugin{Name: "audit", Handlers: []hook.Handler{Note(w)}, Close: func() error { return nil }}
}

// Note returns a hook that writes a line for each finished tool call.
func Note(w io.Writer) hook.Handler {
	return hook.AfterEachTool(func(_ context.Context, call *hook.Call) error {
		_, err := fmt.Fprintln(w, "called", call.Name)
		return err
	})
}
