package result

import (
	"context"
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/internal/errortype"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// PublicReason returns the part of an error that users may see. The text of a foreign error is left out, because
// it may contain secrets.
func PublicReason(err error) string {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return strings.TrimRight(e.Message, ".")
	}
	return "its model did not answer"
}

// NewErrorEvent returns the event that says why a turn failed. It leaves out the text of a foreign error.
func NewErrorEvent(err error) event.Error {
	message := "the agent failed; its log has the error"
	if e, ok := errors.AsType[*failure.Error](err); ok {
		message = e.Message
	}
	return event.Error{Type: errortype.Of(err), Message: message}
}

// WithCause replaces an error that follows from the end of ctx by agent_timeout or user_cancelled. The author's
// code may return the plain error of its context.
func WithCause(ctx context.Context, err error) error {
	switch ended := ctx.Err(); {
	case ended == nil || !errors.Is(err, ended) || failure.Is(err, failure.AgentTimeout, failure.UserCancelled):
		return err
	case errors.Is(ended, context.DeadlineExceeded):
		return failure.New(failure.AgentTimeout, "agent.Run", "the agent took longer than it may; raise its limits.timeout, or ask for less").Because(err)
	default:
		return failure.New(failure.UserCancelled, "agent.Run", "the step was cancelled").Because(err)
	}
}
