package inspect

import (
	"context"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// run runs one command of this package and returns its exit code.
func run(ctx context.Context, args []string, term console.Terminal) int {
	return console.Run(ctx, &Commands{}, args, term)
}
