package routing

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
)

func shutOutOf(agent string) registry.Desire {
	return registry.Desire{Key: registry.Whole(agent), Want: registry.Quarantine, Reason: "it misbehaves", Since: time.Now()}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Guarantees S18: an agent that is shut out has nobody who may take a step, whoever registers,
// and whatever is wanted of its instances.
func TestRoster_AQuarantinedAgentHasNobody(t *testing.T) {
	r, _ := filled()
	shut := r.Shut("a")
	worker := identity.Principal{Role: identity.Worker, Name: "a"}
	require.NoError(t, r.Barred(worker, ""))
	r.Want(shutOutOf("a"))
	require.True(t, isClosed(shut))
	require.True(t, isClosed(r.Shut("a")), "also for who asks later")
	require.False(t, isClosed(r.Shut("b")))
	require.Empty(t, instances(r, "a"))
	require.Zero(t, r.Ready("a"))
	require.Zero(t, r.Places())
	put := instance("9", lifecycle.Ready)
	r.Apply(registry.Update{Put: &put})
	r.Want(registry.Desire{Key: put.Key(), Want: registry.Run})
	list, _ := r.List("a")
	require.Empty(t, list.Instances)
	require.Len(t, list.Withheld, 5)
	require.Equal(t, balance.ShutOut, list.Withheld[4].Why)

	require.True(t, failure.Is(r.Barred(worker, ""), failure.PolicySecurity))
	require.NoError(t, r.Barred(identity.Principal{Role: identity.Worker, Name: "b"}, ""))
	require.NoError(t, r.Barred(identity.Principal{Role: identity.Client, Name: "a"}, ""), "a client is no agent")
	unclaimed, _ := r.Unclaimed()
	require.Empty(t, unclaimed, "nobody forgets it")

	r.Release("a")
	require.Len(t, instances(r, "a"), 4)
	require.False(t, isClosed(r.Shut("a")))
	require.NoError(t, r.Barred(worker, ""))
	r.Release("a")
	r.Want(shutOutOf("a"))
	require.True(t, isClosed(r.Shut("a")), "again")
}

// wanting tells desires once.
type wanting struct{ registry.Desires }

func (wanting) WatchDesires(_ context.Context, apply func(map[registry.Key]registry.Desire)) error {
	d := shutOutOf("b")
	apply(map[registry.Key]registry.Desire{d.Key: d})
	return nil
}

// An orchestrator that starts gives nobody a step before it knows who is shut out.
func TestRoster_WaitsForWhatIsWanted(t *testing.T) {
	r := NewRoster(zap.NewNop(), func(bool, map[string]bool) {})
	r.AwaitDesires()
	other := instance("1", lifecycle.Ready)
	other.Agent = "b"
	r.Apply(registry.Update{List: &[]registry.Instance{instance("1", lifecycle.Ready), other}})
	require.Empty(t, instances(r, "a"))
	require.NoError(t, r.FollowDesires(t.Context(), wanting{}))
	require.Len(t, instances(r, "a"), 1)
	require.Empty(t, instances(r, "b"))
}

// Nor does one that starts without etcd: the snapshot tells it.
func TestSnapshot_HoldsWhoIsShutOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "instances.json")
	keeping(t, path, living("", ""), func(_ *testing.T, r *Roster) {
		r.Apply(registry.Update{List: &[]registry.Instance{instance("1", lifecycle.Ready)}})
		r.Want(shutOutOf("a"))
		pass(2 * time.Second)
	})
	keeping(t, path, living("1", lifecycle.Ready), func(t *testing.T, r *Roster) {
		r.AwaitDesires()
		r.Apply(registry.Update{Away: errors.New("no etcd")})
		pass(time.Second)
		require.True(t, r.Listed())
		require.Empty(t, instances(r, "a"))
		d, out := r.Quarantine("a")
		require.True(t, out)
		require.Equal(t, "it misbehaves", d.Reason)
	})
}
