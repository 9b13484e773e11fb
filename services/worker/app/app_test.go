package app

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/test/loopback"
)

func TestMain(m *testing.M) {
	// The Gemini SDK starts a goroutine when it is imported, so the leak check ignores it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const oneAgent = "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: one}\nspec:\n  model: builtin/extractive\n"

const secondAgent = "---\napiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: two}\nspec:\n  model: builtin/extractive\n"

func agentFiles(text string) fstest.MapFS { return fstest.MapFS{"agents.yaml": {Data: []byte(text)}} }

func parseFlags(t *testing.T, flags ...string) (Config, error) {
	t.Helper()
	var cfg Config
	parser, err := kong.New(&cfg, kong.Exit(func(int) { t.Error("exit") }))
	require.NoError(t, err)
	_, err = parser.Parse(flags)
	return cfg, err
}

// testConfig returns the defaults of the flags, with free ports.
func testConfig(t *testing.T, flags ...string) Config {
	t.Helper()
	cfg, err := parseFlags(t, append(flags, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")...)
	require.NoError(t, err)
	return cfg
}

func TestNew_ReportsInvalidDeclarations(t *testing.T) {
	for name, c := range map[string]struct {
		agent, text, want string
	}{
		"misspelled": {"", strings.Replace(oneAgent, "model", "modle", 1), `--agents: agents.yaml:5: unknown field "modle"; did you mean "model"?`},
		"no YAML":    {"", "kind: [", "--agents: agents.yaml:"},
		"provider": {
			"", strings.Replace(oneAgent, "builtin/extractive", "nobody/large", 1),
			`no provider has the prefix "nobody"; there are anthropic/, builtin/, `,
		},
		"two agents":   {"", oneAgent + secondAgent, "say which agent to run: there are one, two"},
		"another name": {"tow", oneAgent + secondAgent, `agent "tow" is not declared: did you mean "two"?`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, "--agent", c.agent)
			cfg.Agents = ""
			_, err := New(t.Context(), telemetry.Discard(), cfg, agentFiles(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Without files from the caller, New reads the folder that the flag names.
func TestNew_ReadsTheFolderOfTheFlag(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "agents.yaml"), []byte(oneAgent), 0o600))
	w, err := New(t.Context(), telemetry.Discard(), testConfig(t, "--agents", folder), nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())

	absent := filepath.Join(folder, "absent")
	_, err = New(t.Context(), telemetry.Discard(), testConfig(t, "--agents", absent), nil)
	require.ErrorContains(t, err, "--agents: ")
	require.ErrorContains(t, err, absent)
}

func TestNames_ReturnsTheDeclaredAgents(t *testing.T) {
	names, err := Names(agentFiles(oneAgent + secondAgent))
	require.NoError(t, err)
	require.Equal(t, []string{"one", "two"}, names)
	_, err = Names(agentFiles("apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: flow}\nspec: {}\n"))
	require.ErrorContains(t, err, "--agents: the folder declares no agent")
}

// A worker that starts before its dependencies is alive but not ready. It reports which dependency it waits for,
// and stops on request.
func TestNew_WorkerWithoutDependenciesIsAliveAndNotReady(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	cfg := testConfig(t, "--etcd", "127.0.0.1:1", "--memory", "127.0.0.1:1")
	cfg.Worker.HTTPAddr = loopback.Address(t)
	w, err := New(t.Context(), telemetry.FromLogger(zap.New(core)), cfg, agentFiles(oneAgent))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, func() { t.Error("ready") }) }()
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status := func(path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+cfg.Worker.HTTPAddr+path, http.NoBody)
		require.NoError(t, err)
		resp, err := probe.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, status("/livez"))
	require.Equal(t, http.StatusServiceUnavailable, status("/readyz"))
	named := func() bool {
		for _, line := range logs.All() {
			if why, _ := line.ContextMap()["error"].(string); strings.Contains(why, "etcd at 127.0.0.1:1") {
				return true
			}
		}
		return false
	}
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !named() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "the log does not name the address")
		}
	}
	cancel()
	require.NoError(t, <-ended)
}

func TestConfig_RejectsInvalidSettings(t *testing.T) {
	for want, flags := range map[string][]string{
		"--drain: -1s is below zero":                       {"--drain=-1s"},
		`--advertise-addr: "host" is not the host:port of`: {"--advertise-addr", "host"},
		"--log-format must be one of":                      {"--log-format", "xml"},
		`--memory: "foo" is not host:port`:                 {"--memory", "foo"},
		`--instance-id: "a/b"`:                             {"--instance-id", "a/b"},
		`unknown flag --drainn, did you mean "--drain"?`:   {"--drainn", "1s"},
	} {
		_, err := parseFlags(t, flags...)
		require.ErrorContains(t, err, want)
	}
}
