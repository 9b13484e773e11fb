package errortype_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/errortype"
	"github.com/troupe-dev/troupe/pkg/failure"
)

type selfNamedError struct{ name string }

func (selfNamedError) Error() string       { return "no" }
func (e selfNamedError) ErrorType() string { return e.name }

// Req: CO-71
func TestOf(t *testing.T) {
	missing := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	for want, err := range map[string]error{
		"":                              nil,
		"resource_api":                  fmt.Errorf("call: %w", failure.New(failure.ResourceAPI, "test", "down")),
		"system_timeout":                context.DeadlineExceeded,
		"OutOfStock":                    fmt.Errorf("order: %w", selfNamedError{"OutOfStock"}),
		"errortype_test.selfNamedError": selfNamedError{},
		"*fs.PathError":                 fmt.Errorf("read: %w", errors.Join(missing, errors.New("and more"))),
		"*errors.errorString":           errors.New("down"),
	} {
		require.Equal(t, want, errortype.Of(err))
	}
	require.Equal(t, "*fs.PathError", errortype.Of(failure.New(failure.Unknown, "test", "it failed").Because(missing)), "an error without a mode says more by its cause")
}
