package serve

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// runCommand runs one command of this package and returns its exit code.
func runCommand(ctx context.Context, args []string, term console.Terminal) int {
	return console.Run(ctx, &Commands{}, args, term)
}

func newMesh(t *testing.T) *clitest.Mesh { t.Helper(); return clitest.NewMesh(t, runCommand) }
