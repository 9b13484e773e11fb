package trust

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestUsedSignatures_AreBounded(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	number := 0
	another := func() Signature { // a stranger can make any number of signatures
		number++
		return Signature{Time: noon.Add(time.Duration(number%300) * time.Second), Value: []byte{byte(number >> 16), byte(number >> 8), byte(number)}}
	}
	r := newUsedSignatures()
	first := another()
	require.NoError(t, r.record(first, false, noon))
	for range maxUsed - 1 {
		require.NoError(t, r.record(another(), false, noon))
	}
	require.Equal(t, failure.PolicyRateLimit, failure.ModeOf(r.record(another(), false, noon)), "none is forgotten for another")
	require.Equal(t, failure.PolicySecurity, failure.ModeOf(r.record(first, false, noon)))
	require.NoError(t, r.record(another(), true, noon), "strangers do not shut out those who are known")

	later := noon.Add(2*Window + time.Minute)
	require.NoError(t, r.record(Signature{Time: later}, false, later))
	require.Equal(t, 1, r.strangers.size())
	require.Zero(t, r.known.size())
}
