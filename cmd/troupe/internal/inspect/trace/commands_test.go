package trace

import (
	"context"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// run runs one command of this package and returns its exit code.
func run(ctx context.Context, args []string, term console.Terminal) int {
	var commands struct {
		Commands `embed:""`
		Describe struct {
			Trace Describe `cmd:""`
		} `cmd:""`
	}
	return console.Run(ctx, &commands, args, term)
}
