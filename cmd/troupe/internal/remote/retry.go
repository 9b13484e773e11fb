package remote

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/pkg/client"
)

// AnnounceRetries returns a client that prints a message before it waits for an overloaded mesh.
func AnnounceRetries(c *client.Client, term console.Terminal) *client.Client {
	return c.WithWaitNotice(func(_ error, d time.Duration) {
		fmt.Fprintf(term.Err, "The mesh is overloaded; trying again in %s.\n", d.Round(100*time.Millisecond))
	})
}
