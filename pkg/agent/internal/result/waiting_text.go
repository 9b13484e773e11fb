package result

import (
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// WaitingText returns the text of a turn that ends with pending calls. It fails with resource_quota if more calls
// wait than one turn may have. That can happen when agents run concurrently.
func WaitingText(calls []execution.Pending) (string, error) {
	if n := len(calls); n > execution.MaxPending {
		return "", pendingcall.NewTooManyError(n)
	}
	return pendingcall.Summary(calls), nil
}
