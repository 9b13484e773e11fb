package llm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The default timeouts and retries equal the documented numbers. The suite in llmtest tests that they are enforced.
// Req: CO-13
func TestDefaults_MatchTheDocumentation(t *testing.T) {
	require.Equal(t, Timeouts{Connect: 20 * time.Second, FirstByte: 5 * time.Minute, Idle: 5 * time.Minute, Read: 10 * time.Minute}, Timeouts{}.withDefaults())
	require.Equal(t, Timeouts{Connect: 1, FirstByte: 2, Idle: 3, Read: 4}, Timeouts{Connect: 1, FirstByte: 2, Idle: 3, Read: 4}.withDefaults())
	require.Equal(t, 2, Retry{}.withDefaults().Limit)
}
