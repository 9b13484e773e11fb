// Package audittest lets tests read the entries of an audit log.
package audittest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
)

// NewLog returns an audit log in a temporary file, and a function that returns its entries. The function closes
// the log and verifies its chain, and it leaves out entries about the log itself. The log is closed when the test
// ends.
func NewLog(t testing.TB) (log *audit.Log, entries func() []audit.Entry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.New(audit.Config{Path: path, Log: zap.NewNop(), Meter: noop.Meter{}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log, func() (all []audit.Entry) {
		t.Helper()
		require.NoError(t, log.Close())
		_, err := audit.Verify([]string{path}, "", func(_ string, _ int, e audit.RecordedEntry) {
			if e.Kind != audit.LogItself {
				all = append(all, e.Entry)
			}
		})
		require.NoError(t, err)
		return all
	}
}
