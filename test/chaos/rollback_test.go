//go:build chaos

package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// TestRollback runs the rollback check on a mesh without planted bug B6 and expects no violation.
func TestRollback(t *testing.T) {
	r := startRun(t, mesh.Config{Programs: buildPrograms(t, nil)})
	require.Empty(t, r.rollback())
}

// rollback restores an old copy of Redis's data while a client holds a turn that began after the copy was made
// (guarantee F7). A repeated BeginTurn must get a later epoch, and the earlier holder must be fenced.
func (r *run) rollback() []violation.Violation {
	r.t.Helper()
	folder := r.Redis.Dir()
	r.beginTurn("before")
	r.Redis.Kill()
	saved := r.t.TempDir()
	require.NoError(r.t, os.CopyFS(saved, os.DirFS(folder)))
	r.Redis.Start()
	held := r.beginTurn("held")

	r.Redis.Kill()
	require.NoError(r.t, os.RemoveAll(filepath.Join(folder, "appendonlydir")))
	require.NoError(r.t, os.CopyFS(filepath.Join(folder, "appendonlydir"), os.DirFS(filepath.Join(saved, "appendonlydir"))))
	r.Redis.Start()
	again := r.beginTurn("held")
	if again.Epoch <= held.Epoch {
		return []violation.Violation{violation.Newf(CheckEpochReuse, "epoch %d was granted, and then %d", held.Epoch, again.Epoch)}
	}
	_, err := retry.Do(r.ctx, func(ctx context.Context) (int64, error) {
		return 0, r.reliableStore.RenewTurn(ctx, leaseOf(held), time.Minute)
	})
	if !failure.Is(err, failure.Fenced) {
		return []violation.Violation{violation.Newf(CheckEpochReuse, "the holder of before the rollback: want fenced, got %v", err)}
	}
	return nil
}

// beginTurn begins the turn with this name, or takes it over. Its session has the same name.
func (r *run) beginTurn(name string) session.Turn {
	r.t.Helper()
	begun, err := retry.Do(r.ctx, func(ctx context.Context) (memory.BeginResult, error) {
		return r.reliableStore.BeginTurn(ctx, memory.Begin{
			Ref: session.Ref{Session: name}, TurnID: name, TraceID: strings.Repeat("a", 32), Fingerprint: "f",
			Message: conversation.User(name), LeaseTTL: memory.MaxLeaseTTL, Window: 10,
		})
	})
	require.NoError(r.t, err)
	require.Equal(r.t, memory.StatusBegun, begun.Status)
	return begun.Turn
}

func leaseOf(t session.Turn) memory.Lease {
	return memory.Lease{Ref: session.Ref{Session: t.ID}, TurnID: t.ID, Epoch: t.Epoch}
}
