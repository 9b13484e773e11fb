package rig

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Await waits until the condition holds. The test fails if that takes too long.
func (m *Mesh) Await(what string, holds func() bool) {
	m.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(m.t, "a condition did not come true", "in %s: %s", waitTimeout, what)
		}
	}
}

// AwaitReady waits until the orchestrator is ready and every agent accepts steps.
func (m *Mesh) AwaitReady() {
	m.t.Helper()
	m.Await("every agent is ready", func() bool {
		if !m.IsReady(Orchestrator) {
			return false
		}
		resp, err := m.ListAgents(m.t.Context(), &troupev1.ListAgentsRequest{})
		ready := 0
		for _, a := range resp.GetAgents() {
			if a.GetReady() > 0 && slices.Contains(Agents, a.GetName()) {
				ready++
			}
		}
		return err == nil && ready == len(Agents)
	})
}

// AwaitNewKeys waits until each running service has loaded new keys the given number of times since its start. It
// reads this from the logs, so it works only with StartBinaries. Services look for new keys when their metrics are
// read.
func (m *Mesh) AwaitNewKeys(times int) {
	m.t.Helper()
	m.Await("all services have the new keys", func() bool {
		for p := range m.running {
			if metrics, _, _ := m.httpGet(p, "/metrics"); !strings.Contains(metrics, "troupe_certificate_remaining_seconds{") {
				return false
			}
			output, err := os.ReadFile(m.process(p).output)
			require.NoError(m.t, err)
			if strings.Count(string(output), `"message":"new keys"`) < times {
				return false
			}
		}
		return true
	})
}

// IsReady reports whether the readiness probe of a service succeeds.
func (m *Mesh) IsReady(p Part) bool {
	m.t.Helper()
	_, status, err := m.httpGet(p, "/readyz")
	return err == nil && status == http.StatusOK
}

// httpClient keeps no idle connection, because goleak would count it as a leak.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// httpGet reads a page from the HTTP port of a part.
func (m *Mesh) httpGet(p Part, path string) (text string, status int, err error) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.loopbackAddress(p, "http")+path, http.NoBody)
	require.NoError(m.t, err)
	resp, err := httpClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), resp.StatusCode, err
}
