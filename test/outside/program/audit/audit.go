// Package audit is a plugin: a hook that records each call of a tool, and a Close that ends it.
package audit

import (
	"context"
	"fmt"
	"io"

	"github.com/troupe-dev/troupe/pkg/hook"
)

// New returns a plugin that writes a line for each finished call of a tool.
func New(w io.Writer) hook.Plugin {
	return hook.Plugin{Name: "audit", Handlers: []hook.Handler{Note(w)}, Close: func() error { return nil }}
}

// Note returns the hook alone.
func Note(w io.Writer) hook.Handler {
	return hook.AfterEachTool(func(_ context.Context, call *hook.Call) error {
		_, err := fmt.Fprintln(w, "called", call.Name)
		return err
	})
}
