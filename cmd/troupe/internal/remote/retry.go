package remote

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/pkg/client"
)

// NewRetryingClient returns a client that retries when the mesh is overloaded. It prints a message before each
// wait.
func NewRetryingClient(c *client.Client, term console.Terminal) *client.Client {
	return c.WithWaitNotice(func(_ error, d time.Duration) {
		fmt.Fprintf(term.Err, "The mesh is overloaded; trying again in %s.\n", d.Round(100*time.Millisecond))
	})
}
