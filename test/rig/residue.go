package rig

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/redistest"
)

// Residue is all that the mesh has written so far and what it tells of itself, by where that
// is: every file of etcd and of Redis, with a copy of all keys that are there now; of
// binaries the logs of all processes that ever ran, and the audit logs, and else what all services
// logged at info; and the metrics of those that run.
func (m *Mesh) Residue() map[string]string {
	m.t.Helper()
	m.saveRedis()
	found := map[string]string{}
	folders := []struct{ name, folder string }{{"etcd", m.etcd.DataDir()}, {"redis", m.redis.Dir()}}
	if m.cfg.AuditLogs != "" {
		folders = append(folders, struct{ name, folder string }{"audit", m.cfg.AuditLogs})
	}
	for _, of := range folders {
		require.NoError(m.t, filepath.WalkDir(of.folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			found[of.name+" "+strings.TrimPrefix(path, of.folder)] = string(content)
			return err
		}))
	}
	for _, path := range m.logs {
		content, err := os.ReadFile(path)
		require.NoError(m.t, err)
		found["log "+path] = string(content)
	}
	var lines strings.Builder
	for _, e := range m.lines.All() {
		fmt.Fprintf(&lines, "%s %q\n", e.Message, e.ContextMap())
	}
	found["log"] = lines.String()
	for p := range m.running {
		found["metrics "+string(p)] = m.metrics(p)
	}
	return found
}

// saveRedis has Redis write all its keys to a file, as they are.
func (m *Mesh) saveRedis() {
	m.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: m.redis.Addr, Username: redistest.Admin, Password: redistest.Admin})
	defer func() { require.NoError(m.t, client.Close()) }()
	require.NoError(m.t, client.ConfigSet(m.t.Context(), "rdbcompression", "no").Err())
	require.NoError(m.t, client.Save(m.t.Context()).Err())
}

func (m *Mesh) metrics(p Part) string {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.httpAddr(p)+"/metrics", http.NoBody)
	require.NoError(m.t, err)
	resp, err := probes.Do(req)
	require.NoError(m.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(m.t, err)
	return string(body)
}
