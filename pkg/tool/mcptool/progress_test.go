package mcptool_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/tool"
)

// Progress from a server reaches the call that it names, and no other call.
func TestServer_ReportsTheProgressOfACall(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "tells"))
	var mu sync.Mutex
	var told []tool.Report
	ctx := tool.ContextWithReporter(t.Context(), func(r tool.Report) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, r)
	})
	text, err := a.callWithContext(ctx, "tells", "{}")
	require.NoError(t, err)
	require.Equal(t, "done", text)
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, cmp.Diff([]tool.Report{{Message: "a quarter", Fraction: new(0.25)}}, told))
}
