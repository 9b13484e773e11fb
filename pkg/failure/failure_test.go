package failure

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Req: OC-24
func TestMode_RetryableAndTerminalFollowTheContract(t *testing.T) {
	retryable := []Mode{
		SystemNetwork, SystemTimeout, ResourceTool, ResourceAPI, ResourceCircuit, PolicyRateLimit, AgentTimeout,
		PartialToolFailures, PartialStepFailures, PartialTimeout,
	}
	terminal := []Mode{PolicySecurity, PolicyBudget, PolicyAllowlist, SystemCrash, SystemOOM, UserCancelled, AgentContract}
	for _, m := range retryable {
		require.True(t, m.Retryable(), "%s", m)
	}
	for _, m := range terminal {
		require.True(t, m.Terminal(), "%s", m)
	}
	partial := []Mode{PartialToolFailures, PartialStepFailures, PartialTimeout, AgentTimeout, SystemTimeout, ResourceQuota}
	for m := range traitsByMode {
		require.False(t, m.Retryable() && m.Terminal(), "%s is both", m)
		require.Equal(t, slices.Contains(partial, m), m.Partial(), "%s", m)
	}
}

func TestError_IsImmutable(t *testing.T) {
	e := New(NotFound, "op", "no").With("a", "1")
	_ = e.With("b", "2").Because(io.EOF)
	require.Equal(t, map[string]string{"a": "1"}, e.Facts)
	require.NoError(t, e.Cause)
	require.Equal(t, "op: not_found: no", e.Error())
}

func TestRetryAfter_IsFalseWithoutDelay(t *testing.T) {
	full := New(Overloaded, "test", "full")
	after, ok := RetryAfter(full.WithRetryAfter(1500 * time.Millisecond))
	require.True(t, ok)
	require.Equal(t, 1500*time.Millisecond, after)
	for _, err := range []error{full, full.With("retry_after", "soon"), full.With("retry_after", "-1s"), errors.New("else")} {
		_, ok := RetryAfter(err)
		require.False(t, ok, "%v", err)
	}
}
