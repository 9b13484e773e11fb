package interact

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// run runs one command of this package and returns its exit code.
func run(ctx context.Context, args []string, term console.Terminal) int {
	return console.Run(ctx, &Commands{}, args, term)
}

func newMesh(t *testing.T) *clitest.Mesh { t.Helper(); return clitest.NewMesh(t, run) }
