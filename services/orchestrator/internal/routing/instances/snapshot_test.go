package instances

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
)

// runSnapshotTest runs a test with a cache that syncs with a snapshot file, in a synctest bubble. Only the
// instances in alive confirm themselves.
func runSnapshotTest(t *testing.T, path string, alive *sync.Map, test func(t *testing.T, r *Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := New(zap.NewNop(), func(bool, map[string]bool) {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- SnapshotFile{Path: path, Confirm: func(_ context.Context, in registry.Instance) (registry.Instance, bool) {
				state, ok := alive.Load(in.ID)
				in.State, _ = state.(lifecycle.State)
				return in, ok
			}}.Sync(ctx, r)
		}()
		synctest.Wait()
		test(t, r)
		cancel()
		require.NoError(t, <-ended)
	})
}

// confirmingInstance returns a map with one instance that confirms itself in the given state.
func confirmingInstance(id string, s lifecycle.State) *sync.Map {
	var m sync.Map
	m.Store(id, s)
	return &m
}

func sleepFor(d time.Duration) { time.Sleep(d); synctest.Wait() }

func writeSnapshot(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "instances.json")
	runSnapshotTest(t, path, confirmingInstance("", ""), func(_ *testing.T, r *Cache) {
		r.Apply(registry.Update{List: &[]registry.Instance{registrytest.NewInstance("a", "1"), registrytest.NewInstance("a", "2")}})
		sleepFor(2 * time.Second)
	})
	return path
}

func TestSnapshot_IsWrittenAtChangesForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "instances.json")
	runSnapshotTest(t, path, confirmingInstance("", ""), func(t *testing.T, r *Cache) {
		sleepFor(time.Minute)
		require.NoFileExists(t, path, "nothing is known")
		want := []registry.Instance{registrytest.NewInstance("a", "1"), registrytest.NewInstance("b", "1")}
		r.Apply(registry.Update{List: &want})
		sleepFor(2 * time.Second)
		got, _, err := SnapshotFile{Path: path}.read()
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())

		key := want[0].Key()
		r.Apply(registry.Update{Delete: &key})
		sleepFor(2 * time.Second)
		got, _, err = SnapshotFile{Path: path}.read()
		require.NoError(t, err)
		require.Len(t, got, 1)
		sleepFor(25 * time.Hour)
		_, _, err = SnapshotFile{Path: path}.read()
		require.NoError(t, err, "it does not age while the registry is there")
	})
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing is left of writing it")
}

// Guarantees F10.
func TestSnapshot_RestoresInstancesThatConfirmThemselves(t *testing.T) {
	runSnapshotTest(t, writeSnapshot(t), confirmingInstance("2", lifecycle.Ready), func(t *testing.T, r *Cache) {
		require.False(t, r.IsFilled())
		r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
		sleepFor(time.Second)
		require.True(t, r.IsFilled())
		candidates := instances(r, "a")
		require.Len(t, candidates, 1)
		require.Equal(t, "2", candidates[0].ID)
		require.Positive(t, r.Staleness())

		r.Apply(registry.Update{List: &[]registry.Instance{registrytest.NewInstance("a", "3")}})
		require.Equal(t, "3", r.Instances()[0].ID, "the registry has the last word")
	})
}

func TestSnapshot_IsIgnoredWhenItIsNotNeededOrInvalid(t *testing.T) {
	away := registry.Update{Unreachable: errors.New("no etcd")}
	t.Run("when no instance confirms it", func(t *testing.T) {
		alive := confirmingInstance("", "")
		runSnapshotTest(t, writeSnapshot(t), alive, func(t *testing.T, r *Cache) {
			r.Apply(away)
			sleepFor(time.Second)
			require.False(t, r.IsFilled())
			alive.Store("1", lifecycle.Paused)
			sleepFor(recoverPause)
			require.True(t, r.IsFilled(), "they are asked again")
			require.Zero(t, r.Ready("a"))
		})
	})
	t.Run("when the registry was there", func(t *testing.T) {
		runSnapshotTest(t, writeSnapshot(t), confirmingInstance("1", lifecycle.Ready), func(t *testing.T, r *Cache) {
			r.Apply(registry.Update{List: &[]registry.Instance{}})
			sleepFor(2 * time.Second)
			r.Apply(away)
			sleepFor(time.Minute)
			require.Empty(t, r.Instances())
		})
	})
	t.Run("when it is too old", func(t *testing.T) {
		runSnapshotTest(t, writeSnapshot(t), confirmingInstance("1", lifecycle.Ready), func(t *testing.T, r *Cache) {
			sleepFor(25 * time.Hour)
			r.Apply(away)
			sleepFor(time.Second)
			require.False(t, r.IsFilled())
		})
	})
	t.Run("when it cannot be read", func(t *testing.T) {
		path := writeSnapshot(t)
		require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
		runSnapshotTest(t, path, confirmingInstance("1", lifecycle.Ready), func(t *testing.T, r *Cache) {
			r.Apply(away)
			sleepFor(time.Minute)
			require.False(t, r.IsFilled())
		})
	})
}

// Workers that answered too late or were still starting are asked again while the registry cannot be reached.
func TestSnapshot_RetriesUntilTheRegistryIsBack(t *testing.T) {
	alive := confirmingInstance("1", lifecycle.Ready)
	alive.Store("2", lifecycle.Initializing)
	runSnapshotTest(t, writeSnapshot(t), alive, func(t *testing.T, r *Cache) {
		r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
		sleepFor(time.Second)
		require.Equal(t, 1, r.Ready("a"))
		alive.Store("2", lifecycle.Ready)
		sleepFor(recoverPause)
		require.Equal(t, 2, r.Ready("a"))
	})
	alive = confirmingInstance("1", lifecycle.Ready)
	runSnapshotTest(t, writeSnapshot(t), alive, func(t *testing.T, r *Cache) {
		r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
		sleepFor(time.Second)
		alive.Store("2", lifecycle.Ready)
		sleepFor(recoverPause)
		require.Equal(t, 2, r.Ready("a"))
		r.Apply(registry.Update{List: &[]registry.Instance{}})
		r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
		sleepFor(time.Minute)
		require.Zero(t, r.Ready("a"), "the registry has the last word")
	})
}

// While removals are frozen, the file is not overwritten.
func TestSnapshot_IsNotOverwrittenWhileRemovalsAreFrozen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "instances.json")
	runVanishTest(t, 4, func(m *vanishFixture) {
		ctx, cancel := context.WithCancel(m.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- SnapshotFile{Path: path}.Sync(ctx, m.Cache) }()
		written := func() int {
			m.sleep(3 * time.Second)
			all, _, err := SnapshotFile{Path: path}.read()
			require.NoError(t, err)
			return len(all)
		}
		require.Equal(t, 4, written())
		m.vanish("0")
		require.Equal(t, 4, written(), "it answers")
		m.setHealth("1", Unreachable)
		m.vanish("1", "2")
		require.True(t, m.HasFrozenRemovals())
		require.Equal(t, 4, written())
		m.sleep(registrationTTL)
		require.True(t, m.HasFrozenRemovals())
		require.Len(t, m.Instances(), 3)
		require.Equal(t, 4, written(), "until it is known better")
		for _, id := range []string{"0", "2"} {
			m.setHealth(id, Unreachable)
		}
		m.sleep(2 * registrationTTL)
		require.False(t, m.HasFrozenRemovals())
		require.Equal(t, 1, written())
		cancel()
		require.NoError(t, <-ended)
	})
}
