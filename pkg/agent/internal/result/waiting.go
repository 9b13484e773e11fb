package result

import (
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Waiting returns the text of a turn that ends because calls wait. It fails with resource_quota when more of them wait
// than one turn may leave, as agents that run concurrently may cause.
func Waiting(calls []execution.Pending) (string, error) {
	if n := len(calls); n > execution.MaxPending {
		return "", pendingcall.TooManyError(n)
	}
	return pendingcall.Summary(calls), nil
}
