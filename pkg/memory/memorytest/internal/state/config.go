package state

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

func configTests() fixture.Tests {
	return fixture.Tests{
		"Config_IsReadAndVersioned":          configIsReadAndVersioned,
		"Config_RejectRefusesAConflict":      configRejectRefusesAConflict,
		"Config_MergeTakesUnchangedKeys":     configMergeTakesUnchangedKeys,
		"Config_BothWritersMustMerge":        configBothWritersMustMerge,
		"Config_IsIdempotent":                configIsIdempotent,
		"Config_ConcurrentMergesLoseNothing": configConcurrentMergesLoseNothing,
		"Config_IsBounded":                   configIsBounded,
		"Config_RefusesInvalidValues":        configRefusesInvalidValues,
		"Config_RefusesAnUnknownBase":        configRefusesAnUnknownBase,
		"Config_ARemovedKeyCountsAsChanged":  configARemovedKeyCountsAsChanged,
	}
}

// configuring returns a change of the agent's configuration; pairs are alternating keys and values.
func configuring(agent string, base int64, p ownership.Protocol, pairs ...string) memory.ConfigChange {
	return memory.ConfigChange{Agent: agent, Base: base, Protocol: p, Delta: fixture.Delta(pairs...)}
}

func agentName() string { return "a-" + strings.ToLower(fixture.UniqueName("x")[2:]) }

// configure makes a change that must succeed.
func configure(t *testing.T, store memory.Store, c memory.ConfigChange) memory.Configuration {
	t.Helper()
	got, err := store.PutConfig(t.Context(), c)
	require.NoError(t, err)
	return got
}

// configured returns the stored configuration.
func configured(t *testing.T, store memory.Store, agent string) memory.Configuration {
	t.Helper()
	got, err := store.GetConfig(t.Context(), agent)
	require.NoError(t, err)
	return got
}

// met checks that a change is rejected because of an earlier one, and changes nothing.
func met(t *testing.T, store memory.Store, c memory.ConfigChange, key string) {
	t.Helper()
	before := configured(t, store, c.Agent)
	_, err := store.PutConfig(t.Context(), c)
	fixture.RequireMode(t, err, failure.RevisionMismatch, "if_revision", strconv.FormatInt(c.Base, 10), "revision",
		strconv.FormatInt(before.Version, 10), "key", key)
	require.Equal(t, before, configured(t, store, c.Agent))
}

func configIsReadAndVersioned(t *testing.T, store memory.Store) {
	agent, other := agentName(), agentName()
	none := configured(t, store, agent)
	require.Zero(t, none.Version)
	require.Empty(t, none.Values)
	first := configure(t, store, configuring(agent, 0, ownership.Reject, "tone", `"kind"`, "odd \x01key: ", `{"a":[1]}`))
	require.Positive(t, first.Version)
	require.Equal(t, memory.Configuration{
		Version: first.Version, Protocol: ownership.Reject,
		Values: fixture.Delta("tone", `"kind"`, "odd \x01key: ", `{"a":[1]}`),
	}, first)
	require.Equal(t, first, configured(t, store, agent))
	second := configure(t, store, configuring(agent, first.Version, ownership.Reject, "tone", "", "limit", "3"))
	require.Greater(t, second.Version, first.Version)
	require.Equal(t, fixture.Delta("odd \x01key: ", `{"a":[1]}`, "limit", "3"), second.Values)
	require.Zero(t, configured(t, store, other).Version, "each agent has its own")
}

// Req: SO-11
func configRejectRefusesAConflict(t *testing.T, store memory.Store) {
	agent := agentName()
	base := configure(t, store, configuring(agent, 0, ownership.Reject, "a", "1", "b", "1"))
	configure(t, store, configuring(agent, base.Version, ownership.Reject, "a", "2"))
	met(t, store, configuring(agent, base.Version, ownership.Reject, "b", "2"), "")
	met(t, store, configuring(agent, 0, ownership.Reject, "c", "2"), "")
}

// Req: SO-11
func configMergeTakesUnchangedKeys(t *testing.T, store memory.Store) {
	agent := agentName()
	base := configure(t, store, configuring(agent, 0, ownership.Merge, "a", "1", "b", "1", "c", "1"))
	configure(t, store, configuring(agent, base.Version, ownership.Merge, "a", "2"))
	merged := configure(t, store, configuring(agent, base.Version, ownership.Merge, "b", "2", "new", "1"))
	require.Equal(t, fixture.Delta("a", "2", "b", "2", "c", "1", "new", "1"), merged.Values)
	met(t, store, configuring(agent, base.Version, ownership.Merge, "a", "3", "c", "3"), "a")
	met(t, store, configuring(agent, base.Version, ownership.Merge, "new", "3"), "new")
	require.Equal(t, fixture.Delta("a", "2", "b", "2", "new", "1"), configure(t, store, configuring(agent, base.Version, ownership.Merge, "c", "")).Values)
}

func configBothWritersMustMerge(t *testing.T, store memory.Store) {
	agent := agentName()
	base := configure(t, store, configuring(agent, 0, ownership.Merge, "a", "1"))
	last := configure(t, store, configuring(agent, base.Version, ownership.Reject, "b", "1"))
	require.Equal(t, ownership.Reject, last.Protocol)
	met(t, store, configuring(agent, base.Version, ownership.Merge, "c", "1"), "")
	again := configure(t, store, configuring(agent, last.Version, ownership.Merge, "c", "1"))
	met(t, store, configuring(agent, last.Version, ownership.Reject, "d", "1"), "")
	require.Equal(t, ownership.Merge, again.Protocol)
}

func configIsIdempotent(t *testing.T, store memory.Store) {
	agent := agentName()
	change := configuring(agent, 0, ownership.Reject, "a", "1", "gone", "")
	first := configure(t, store, change)
	require.Equal(t, first, configure(t, store, change))
	require.Equal(t, first, configured(t, store, agent))
}

// Req: SO-11
func configConcurrentMergesLoseNothing(t *testing.T, store memory.Store) {
	agent := agentName()
	base := configure(t, store, configuring(agent, 0, ownership.Merge, "start", "1"))
	const writers = 8
	var beside sync.WaitGroup
	var refused atomic.Int64
	for n := range writers {
		beside.Go(func() {
			own := configuring(agent, base.Version, ownership.Merge, fmt.Sprintf("own-%d", n), strconv.Itoa(n))
			if _, err := store.PutConfig(context.WithoutCancel(t.Context()), own); err != nil {
				t.Errorf("%d: %v", n, err)
			}
			same := configuring(agent, base.Version, ownership.Merge, "same", strconv.Itoa(n))
			if _, err := store.PutConfig(context.WithoutCancel(t.Context()), same); failure.Is(err, failure.RevisionMismatch) {
				refused.Add(1)
			}
		})
	}
	beside.Wait()
	require.EqualValues(t, writers-1, refused.Load(), "one of those that changed the same key")
	require.Len(t, configured(t, store, agent).Values, writers+2)
}

func configIsBounded(t *testing.T, store memory.Store) {
	agent := agentName()
	big := `"` + strings.Repeat("x", memory.MaxStateValue-2) + `"`
	full := configure(t, store, configuring(agent, 0, ownership.Reject, "a", big, "b", big, "c", big))
	_, err := store.PutConfig(t.Context(), configuring(agent, full.Version, ownership.Reject, "d", big))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Equal(t, full.Version, configured(t, store, agent).Version)

	many := configuring(agentName(), 0, ownership.Reject)
	for n := range memory.MaxConfigKeys {
		many.Delta[strconv.Itoa(n)] = json.RawMessage("1")
	}
	full = configure(t, store, many)
	_, err = store.PutConfig(t.Context(), configuring(many.Agent, full.Version, ownership.Reject, "one more", "1"))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	configure(t, store, configuring(many.Agent, full.Version, ownership.Reject, "one more", "1", "0", ""))
}

func configRefusesInvalidValues(t *testing.T, store memory.Store) {
	agent := agentName()
	for _, c := range []memory.ConfigChange{
		configuring(agent, 0, ownership.Reject), configuring(agent, 0, "", "a", "1"), configuring(agent, 0, "last", "a", "1"),
		configuring(agent, 0, ownership.Reject, "a", "no json"), configuring(agent, 0, ownership.Reject, "", "1"),
		configuring(agent, 0, ownership.Reject, strings.Repeat("k", memory.MaxStateKey+1), "1"),
	} {
		_, err := store.PutConfig(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
	}
	require.Zero(t, configured(t, store, agent).Version)
}

func configRefusesAnUnknownBase(t *testing.T, store memory.Store) {
	agent := agentName()
	met(t, store, configuring(agent, 7, ownership.Merge, "a", "1"), "")
	last := configure(t, store, configuring(agent, 0, ownership.Merge, "a", "1"))
	met(t, store, configuring(agent, last.Version+1, ownership.Merge, "b", "1"), "")
}

func configARemovedKeyCountsAsChanged(t *testing.T, store memory.Store) {
	agent := agentName()
	base := configure(t, store, configuring(agent, 0, ownership.Merge, "a", "1", "b", "1"))
	gone := configure(t, store, configuring(agent, base.Version, ownership.Merge, "a", ""))
	met(t, store, configuring(agent, base.Version, ownership.Merge, "a", "2"), "a")
	configure(t, store, configuring(agent, base.Version, ownership.Merge, "b", "2"))
	configure(t, store, configuring(agent, gone.Version, ownership.Merge, "a", "2"))
}
