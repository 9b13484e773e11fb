package ownership

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Req: SO-6, SO-7
func TestAgentState_RejectsKeysOfOtherTiers(t *testing.T) {
	s := NewAgentState("researcher", nil, nil)
	for key, owner := range map[string]Owner{
		"history": Memory, "facts": Memory, "app:theme": Memory, "user:name": Memory,
		"trace_id": Orchestrator, "routing": Orchestrator, "config": Shared,
	} {
		for _, err := range []error{s.Set(key, 1), s.Delete(key)} {
			refused, ok := errors.AsType[*failure.Error](err)
			require.True(t, ok, "%s: %v", key, err)
			require.Equal(t, failure.StateViolation, refused.Mode)
			require.Equal(t, map[string]string{"key": key, "owner": string(owner), "actor": "researcher"}, refused.Facts)
			require.Equal(t, fmt.Sprintf(`state %q is owned by %s, but researcher attempted to modify it`, key, owner), refused.Message)
		}
		_, ok := s.Get(key)
		require.False(t, ok)
	}
	require.Empty(t, s.Keys())
}

// Req: SO-5
func TestAgentState_ReportsUndeclaredKeysOnce(t *testing.T) {
	var unknown []string
	s := NewAgentState("researcher", map[string]Owner{"counter": Agent, "history": Agent, "ledger": Memory}, func(key string) {
		unknown = append(unknown,
			key)
	})
	for range 2 {
		for _, key := range []string{"_scratch", "temp:x", "counter", "history", "other", "topic"} {
			require.NoError(t, s.Set(key, key))
		}
	}
	require.Equal(t, []string{"other", "topic"}, unknown)
	require.True(t, failure.Is(s.Set("ledger", 1), failure.StateViolation), "declared as another's")
	owner, declared := s.Owner("history")
	require.Equal(t, Agent, owner, "the agent's own word comes before the rules")
	require.True(t, declared)
	owner, _ = NewAgentState("a", map[string]Owner{"_x": Memory}, nil).Owner("_x")
	require.Equal(t, Agent, owner, "except for key families")

	require.NoError(t, s.Delete("other"))
	require.NoError(t, s.Delete("never"))
	value, ok := s.Get("counter")
	require.True(t, ok)
	require.Equal(t, "counter", value)
	require.Equal(t, []string{"_scratch", "counter", "history", "temp:x", "topic"}, s.Keys())
	s.Clear()
	require.Empty(t, s.Keys())
	require.NoError(t, s.Set("other", 1))
	require.Equal(t, []string{"other", "topic", "other"}, unknown, "a new life warns anew")
}

func TestAgentState_IsSafeForConcurrentUse(t *testing.T) {
	var warned sync.Map
	s := NewAgentState("a", nil, func(key string) {
		if _, twice := warned.LoadOrStore(key, true); twice {
			t.Errorf("%s was warned of twice", key)
		}
	})
	var beside sync.WaitGroup
	for n := range 8 {
		beside.Go(func() {
			for i := range 100 {
				_ = s.Set(fmt.Sprint(i%10), n)
				s.Get(fmt.Sprint(i % 10))
				s.Keys()
				_ = s.Delete(fmt.Sprint(9 - i%10))
			}
		})
	}
	beside.Wait()
}

func TestTraceView_IsACopy(t *testing.T) {
	values := map[string]string{"trace_id": "t-1", "routing": "x"}
	v := NewTraceView(values)
	values["trace_id"] = "mine"
	id, ok := v.Get("trace_id")
	require.True(t, ok)
	require.Equal(t, "t-1", id)
	_, ok = v.Get("none")
	require.False(t, ok)
	keys := v.Keys()
	require.Equal(t, []string{"routing", "trace_id"}, keys)
	slices.Reverse(keys)
	require.Equal(t, []string{"routing", "trace_id"}, v.Keys())
	require.Empty(t, TraceView{}.Keys())
}
