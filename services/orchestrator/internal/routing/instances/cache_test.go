package instances

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
)

func instance(id string, state lifecycle.State) registry.Instance {
	return registry.Instance{ID: id, Agent: "a", Address: id + ":1", State: state, Capacity: 1}
}

func filledCache() (*Cache, *map[string]bool) {
	known := map[string]bool{}
	r := New(zap.NewNop(), func(_ bool, addresses map[string]bool) { known = addresses })
	r.Apply(registry.Update{List: &[]registry.Instance{
		instance("1", lifecycle.Ready), instance("2", lifecycle.Ready), instance("3", lifecycle.Paused), instance("4", lifecycle.Ready),
	}})
	return r, &known
}

func TestCache_KeepsItsInstancesWhenTheRegistryIsAway(t *testing.T) {
	r, _ := filledCache()
	r.Apply(registry.Update{Unreachable: errors.New("no etcd")})
	candidates := instances(r, "a")
	require.Len(t, candidates, 3)
	require.Positive(t, r.Staleness())
	r.Apply(registry.Update{List: &[]registry.Instance{instance("1", lifecycle.Ready)}})
	require.Zero(t, r.Staleness())
	require.Len(t, r.Instances(), 1)
}

func TestCache_NotifiesOfChanges(t *testing.T) {
	r, known := filledCache()
	none, changed := r.List("b")
	require.Empty(t, none.Instances)
	put := registry.Instance{ID: "5", Agent: "b", Address: "5:1", State: lifecycle.Ready}
	r.Apply(registry.Update{Put: &put})
	<-changed
	require.True(t, r.KnowsAgent("b"))
	require.True(t, (*known)["5:1"])

	key := put.Key()
	r.Apply(registry.Update{Delete: &key})
	require.False(t, r.KnowsAgent("b"))
	require.False(t, (*known)["5:1"])
}

// instances returns the instances of an agent that may get a step.
func instances(r *Cache, agent string) []registry.Instance {
	list, _ := r.List(agent)
	return list.Instances
}
