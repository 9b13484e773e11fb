package lifecycle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Req: LC-31, LC-35
func TestRunWith_ShutsDownHoweverBodyEnds(t *testing.T) {
	broken := errors.New("broken")
	for name, body := range map[string]func(context.Context, error) error{
		"no error": func(context.Context, error) error { return nil },
		"error":    func(context.Context, error) error { return broken },
	} {
		stopped := 0
		i := New(Config{Stop: func(context.Context) error { stopped++; return errors.New("the shutdown failed too") }})
		err := i.RunWith(t.Context(), time.Second, "the end", body)
		require.Equal(t, name == "error", errors.Is(err, broken))
		require.ErrorContains(t, err, "the shutdown failed too")
		require.Equal(t, Terminated, i.Status().State)
		require.Equal(t, 1, stopped)
	}
	i := New(Config{})
	require.PanicsWithValue(t, "oh", func() { _ = i.RunWith(t.Context(), 0, "", func(context.Context, error) error { panic("oh") }) })
	require.Equal(t, Terminated, i.Status().State)
	i = New(Config{Start: func(context.Context) error { return broken }})
	require.ErrorIs(t, i.RunWith(t.Context(), 0, "", func(context.Context, error) error { t.Error("not started"); return nil }), broken)
	require.Equal(t, Terminated, i.Status().State)
	for name, cfg := range map[string]Config{
		"failed start with KeepFailed": {KeepFailed: true, Start: func(context.Context) error { return broken }},
		"caller is cancelled":          {Start: func(ctx context.Context) error { <-ctx.Done(); return broken }},
	} {
		ctx, leave := context.WithCancel(t.Context())
		i, used := New(cfg), make(chan error)
		go func() { used <- i.RunWith(ctx, 0, "", func(context.Context, error) error { return nil }) }()
		leave()
		require.Error(t, <-used)
		require.Equal(t, Terminated, i.Status().State, "%s", name)
	}
}
