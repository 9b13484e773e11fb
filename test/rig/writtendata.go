package rig

import (
	"fmt"
	"os"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/rig/stores"
)

// WrittenData returns everything that the mesh has written so far, keyed by place. It contains the files of etcd
// and Redis with all current keys, the audit logs, and the output of all processes. It also contains the metrics,
// and the logs of in-process services from level info.
func (m *Mesh) WrittenData() map[string]string {
	m.t.Helper()
	found := m.Stores.ReadFiles()
	if m.cfg.AuditLogFolder != "" {
		require.NoError(m.t, stores.ReadFolder(found, "audit", m.cfg.AuditLogFolder))
	}
	for _, path := range m.outputPaths {
		content, err := os.ReadFile(path)
		require.NoError(m.t, err)
		found["log "+path] = string(content)
	}
	var lines strings.Builder
	for _, e := range m.log.All() {
		fmt.Fprintf(&lines, "%s %q\n", e.Message, e.ContextMap())
	}
	found["log"] = lines.String()
	for p := range m.running {
		metrics, _, err := m.httpGet(p, "/metrics")
		require.NoError(m.t, err)
		found["metrics "+string(p)] = metrics
	}
	return found
}

// AuditLog returns the path of a part's audit log. It requires Config.AuditLogFolder.
func (m *Mesh) AuditLog(p Part) string { return m.cfg.auditLog(p) }
