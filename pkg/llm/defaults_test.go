package llm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The default bounds and retries equal the documented numbers. The suite in llmtest tests that they are enforced.
// Req: CO-13
func TestDefaults_MatchTheDocumentation(t *testing.T) {
	require.Equal(t, Bounds{Connect: 20 * time.Second, FirstByte: 5 * time.Minute, Idle: 5 * time.Minute, Read: 10 * time.Minute}, Bounds{}.withDefaults())
	require.Equal(t, Bounds{Connect: 1, FirstByte: 2, Idle: 3, Read: 4}, Bounds{Connect: 1, FirstByte: 2, Idle: 3, Read: 4}.withDefaults())
	require.Equal(t, 2, Retry{}.withDefaults().Limit)
}
