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
		"Config_EachChangeGetsAVersion":         configEachChangeGetsAVersion,
		"Config_RejectProtocolRejectsConflicts": configRejectProtocolRejectsConflicts,
		"Config_MergeProtocolAcceptsOtherKeys":  configMergeProtocolAcceptsOtherKeys,
		"Config_BothWritersMustMerge":           configBothWritersMustMerge,
		"Config_IsIdempotent":                   configIsIdempotent,
		"Config_ConcurrentMergesLoseNothing":    configConcurrentMergesLoseNothing,
		"Config_RejectsTooMuchData":             configRejectsTooMuchData,
		"Config_RejectsInvalidValues":           configRejectsInvalidValues,
		"Config_RejectsAnUnknownBaseVersion":    configRejectsAnUnknownBaseVersion,
		"Config_RemovedKeyCountsAsChanged":      configRemovedKeyCountsAsChanged,
	}
}

// newConfigChange returns a change of the agent's configuration, given alternating keys and values.
func newConfigChange(agent string, base int64, p ownership.Protocol, pairs ...string) memory.ConfigChange {
	return memory.ConfigChange{Agent: agent, Base: base, Protocol: p, Delta: fixture.Delta(pairs...)}
}

func agentName() string { return "a-" + strings.ToLower(fixture.UniqueName("x")[2:]) }

// putConfig applies a change and fails the test on an error.
func putConfig(t *testing.T, store memory.Store, c memory.ConfigChange) memory.Configuration {
	t.Helper()
	got, err := store.PutConfig(t.Context(), c)
	require.NoError(t, err)
	return got
}

// getConfig returns the stored configuration and fails the test on an error.
func getConfig(t *testing.T, store memory.Store, agent string) memory.Configuration {
	t.Helper()
	got, err := store.GetConfig(t.Context(), agent)
	require.NoError(t, err)
	return got
}

// requireConflict requires that a change is rejected as conflicting with an earlier one, and that it changes
// nothing.
func requireConflict(t *testing.T, store memory.Store, c memory.ConfigChange, key string) {
	t.Helper()
	before := getConfig(t, store, c.Agent)
	_, err := store.PutConfig(t.Context(), c)
	fixture.RequireMode(t, err, failure.RevisionMismatch, "if_revision", strconv.FormatInt(c.Base, 10), "revision",
		strconv.FormatInt(before.Version, 10), "key", key)
	require.Equal(t, before, getConfig(t, store, c.Agent))
}

func configEachChangeGetsAVersion(t *testing.T, store memory.Store) {
	agent, other := agentName(), agentName()
	none := getConfig(t, store, agent)
	require.Zero(t, none.Version)
	require.Empty(t, none.Values)
	first := putConfig(t, store, newConfigChange(agent, 0, ownership.Reject, "tone", `"kind"`, "odd \x01key: ", `{"a":[1]}`))
	require.Positive(t, first.Version)
	require.Equal(t, memory.Configuration{
		Version: first.Version, Protocol: ownership.Reject,
		Values: fixture.Delta("tone", `"kind"`, "odd \x01key: ", `{"a":[1]}`),
	}, first)
	require.Equal(t, first, getConfig(t, store, agent))
	second := putConfig(t, store, newConfigChange(agent, first.Version, ownership.Reject, "tone", "", "limit", "3"))
	require.Greater(t, second.Version, first.Version)
	require.Equal(t, fixture.Delta("odd \x01key: ", `{"a":[1]}`, "limit", "3"), second.Values)
	require.Zero(t, getConfig(t, store, other).Version, "each agent has its own")
}

// Req: SO-11
func configRejectProtocolRejectsConflicts(t *testing.T, store memory.Store) {
	agent := agentName()
	base := putConfig(t, store, newConfigChange(agent, 0, ownership.Reject, "a", "1", "b", "1"))
	putConfig(t, store, newConfigChange(agent, base.Version, ownership.Reject, "a", "2"))
	requireConflict(t, store, newConfigChange(agent, base.Version, ownership.Reject, "b", "2"), "")
	requireConflict(t, store, newConfigChange(agent, 0, ownership.Reject, "c", "2"), "")
}

// Req: SO-11
func configMergeProtocolAcceptsOtherKeys(t *testing.T, store memory.Store) {
	agent := agentName()
	base := putConfig(t, store, newConfigChange(agent, 0, ownership.Merge, "a", "1", "b", "1", "c", "1"))
	putConfig(t, store, newConfigChange(agent, base.Version, ownership.Merge, "a", "2"))
	merged := putConfig(t, store, newConfigChange(agent, base.Version, ownership.Merge, "b", "2", "new", "1"))
	require.Equal(t, fixture.Delta("a", "2", "b", "2", "c", "1", "new", "1"), merged.Values)
	requireConflict(t, store, newConfigChange(agent, base.Version, ownership.Merge, "a", "3", "c", "3"), "a")
	requireConflict(t, store, newConfigChange(agent, base.Version, ownership.Merge, "new", "3"), "new")
	require.Equal(t, fixture.Delta("a", "2", "b", "2", "new", "1"), putConfig(t, store, newConfigChange(agent, base.Version, ownership.Merge, "c", "")).Values)
}

func configBothWritersMustMerge(t *testing.T, store memory.Store) {
	agent := agentName()
	base := putConfig(t, store, newConfigChange(agent, 0, ownership.Merge, "a", "1"))
	last := putConfig(t, store, newConfigChange(agent, base.Version, ownership.Reject, "b", "1"))
	require.Equal(t, ownership.Reject, last.Protocol)
	requireConflict(t, store, newConfigChange(agent, base.Version, ownership.Merge, "c", "1"), "")
	again := putConfig(t, store, newConfigChange(agent, last.Version, ownership.Merge, "c", "1"))
	requireConflict(t, store, newConfigChange(agent, last.Version, ownership.Reject, "d", "1"), "")
	require.Equal(t, ownership.Merge, again.Protocol)
}

func configIsIdempotent(t *testing.T, store memory.Store) {
	agent := agentName()
	change := newConfigChange(agent, 0, ownership.Reject, "a", "1", "gone", "")
	first := putConfig(t, store, change)
	require.Equal(t, first, putConfig(t, store, change))
	require.Equal(t, first, getConfig(t, store, agent))
}

// Req: SO-11
func configConcurrentMergesLoseNothing(t *testing.T, store memory.Store) {
	agent := agentName()
	base := putConfig(t, store, newConfigChange(agent, 0, ownership.Merge, "start", "1"))
	const writers = 8
	var beside sync.WaitGroup
	var rejected atomic.Int64
	for n := range writers {
		beside.Go(func() {
			own := newConfigChange(agent, base.Version, ownership.Merge, fmt.Sprintf("own-%d", n), strconv.Itoa(n))
			if _, err := store.PutConfig(context.WithoutCancel(t.Context()), own); err != nil {
				t.Errorf("%d: %v", n, err)
			}
			same := newConfigChange(agent, base.Version, ownership.Merge, "same", strconv.Itoa(n))
			if _, err := store.PutConfig(context.WithoutCancel(t.Context()), same); failure.Is(err, failure.RevisionMismatch) {
				rejected.Add(1)
			}
		})
	}
	beside.Wait()
	require.EqualValues(t, writers-1, rejected.Load(), "one of those that changed the same key")
	require.Len(t, getConfig(t, store, agent).Values, writers+2)
}

func configRejectsTooMuchData(t *testing.T, store memory.Store) {
	agent := agentName()
	big := `"` + strings.Repeat("x", memory.MaxStateValueBytes-2) + `"`
	full := putConfig(t, store, newConfigChange(agent, 0, ownership.Reject, "a", big, "b", big, "c", big))
	_, err := store.PutConfig(t.Context(), newConfigChange(agent, full.Version, ownership.Reject, "d", big))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Equal(t, full.Version, getConfig(t, store, agent).Version)

	many := newConfigChange(agentName(), 0, ownership.Reject)
	for n := range memory.MaxConfigKeys {
		many.Delta[strconv.Itoa(n)] = json.RawMessage("1")
	}
	full = putConfig(t, store, many)
	_, err = store.PutConfig(t.Context(), newConfigChange(many.Agent, full.Version, ownership.Reject, "one more", "1"))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	putConfig(t, store, newConfigChange(many.Agent, full.Version, ownership.Reject, "one more", "1", "0", ""))
}

func configRejectsInvalidValues(t *testing.T, store memory.Store) {
	agent := agentName()
	for _, c := range []memory.ConfigChange{
		newConfigChange(agent, 0, ownership.Reject), newConfigChange(agent, 0, "", "a", "1"), newConfigChange(agent, 0, "last", "a", "1"),
		newConfigChange(agent, 0, ownership.Reject, "a", "no json"), newConfigChange(agent, 0, ownership.Reject, "", "1"),
		newConfigChange(agent, 0, ownership.Reject, strings.Repeat("k", memory.MaxStateKeyBytes+1), "1"),
	} {
		_, err := store.PutConfig(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
	}
	require.Zero(t, getConfig(t, store, agent).Version)
}

func configRejectsAnUnknownBaseVersion(t *testing.T, store memory.Store) {
	agent := agentName()
	requireConflict(t, store, newConfigChange(agent, 7, ownership.Merge, "a", "1"), "")
	last := putConfig(t, store, newConfigChange(agent, 0, ownership.Merge, "a", "1"))
	requireConflict(t, store, newConfigChange(agent, last.Version+1, ownership.Merge, "b", "1"), "")
}

func configRemovedKeyCountsAsChanged(t *testing.T, store memory.Store) {
	agent := agentName()
	base := putConfig(t, store, newConfigChange(agent, 0, ownership.Merge, "a", "1", "b", "1"))
	gone := putConfig(t, store, newConfigChange(agent, base.Version, ownership.Merge, "a", ""))
	requireConflict(t, store, newConfigChange(agent, base.Version, ownership.Merge, "a", "2"), "a")
	putConfig(t, store, newConfigChange(agent, base.Version, ownership.Merge, "b", "2"))
	putConfig(t, store, newConfigChange(agent, gone.Version, ownership.Merge, "a", "2"))
}
