package rig

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/gobuild"
)

// StartBinaries starts a mesh whose services run as processes of the shipped binary.
func StartBinaries(t testing.TB, cfg Config) *Mesh {
	t.Helper()
	dir, err := buildPrograms()
	require.NoError(t, err)
	return start(t, cfg, func(m *Mesh, p Part) service { return launchProcess(m, dir, p) })
}

// buildPrograms builds the binaries of the services and of Programs, once for all tests of a process.
var buildPrograms = sync.OnceValues(func() (folder string, err error) {
	return gobuild.Build(repositoryRoot(), "./services/memory", "./services/orchestrator", "./services/worker", "./test/rig/...")
})

// process is a service that runs in its own process.
type process struct {
	cmd    *exec.Cmd
	output string // path of the file with its output
	done   chan struct{}
	err    error // valid once done is closed
}

func launchProcess(m *Mesh, dir string, p Part) service {
	m.t.Helper()
	program, _, _ := strings.Cut(string(p), " ")
	if added, ok := m.programs[p]; ok {
		program = path.Base(added.Package)
	}
	output, err := os.Create(filepath.Join(m.t.TempDir(), program+".log"))
	require.NoError(m.t, err)
	m.outputPaths = append(m.outputPaths, output.Name())
	c := &process{cmd: exec.Command(filepath.Join(dir, program)), output: output.Name(), done: make(chan struct{})}
	c.cmd.Env = append(append(os.Environ(), "GOTRACEBACK=crash"), environment(m, p)...) // a crash prints all goroutines
	c.cmd.Stdout, c.cmd.Stderr = output, output
	require.NoError(m.t, c.cmd.Start())
	go func() { c.err = c.cmd.Wait(); close(c.done) }()
	m.t.Cleanup(func() {
		_ = output.Close()
		if m.t.Failed() {
			text, _ := os.ReadFile(output.Name())
			m.t.Logf("output of %s:\n%s", p, text)
		}
	})
	return c
}

// environment returns the environment variables that configure a part, as a cluster would set them.
func environment(m *Mesh, p Part) []string {
	env := []string{
		"TROUPE_GRPC_ADDR=" + m.Address(p), "TROUPE_HTTP_ADDR=" + m.loopbackAddress(p, "http"),
		"TROUPE_LOG_LEVEL=" + cmp.Or(m.cfg.LogLevel, "info"), "TROUPE_AGENTS=" + agentsDir(),
	}
	if self := m.Credentials.ProcessConfig(string(p)); self.Cert != "" {
		env = append(env, "TROUPE_TLS_CERT="+self.Cert, "TROUPE_TLS_KEY="+self.Key, "TROUPE_TLS_CA="+self.CA)
	} else if self.DevCA != "" {
		env = append(env, "TROUPE_TLS_DEV_CA="+self.DevCA)
	}
	if m.cfg.CollectorURL != "" {
		env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+m.cfg.CollectorURL)
	}
	if m.cfg.AuditLogFolder != "" {
		env = append(env, "TROUPE_AUDIT_LOG="+m.AuditLog(p))
	}
	etcd := "TROUPE_ETCD=" + strings.Join(m.Stores.Etcd.Endpoints(), ",")
	switch p {
	case Memory:
		if m.cfg.WatchQuarantines {
			env = append(env, etcd)
		}
		return append(env, "TROUPE_REDIS="+m.Stores.RedisURL("memory"))
	case Orchestrator:
		return append(append(env, etcd, "TROUPE_MEMORY="+m.Address(Memory)), orchestratorEnvironment(m)...)
	default:
		return append(append(env, etcd, "TROUPE_MEMORY="+m.Address(Memory)), workerEnvironment(m, p)...)
	}
}

func orchestratorEnvironment(m *Mesh) []string {
	env := []string{
		"TROUPE_AGENTS=" + m.cfg.workflows(), "TROUPE_REDIS=" + m.Stores.RedisURL("orchestrator"), "TROUPE_REFLECTION=true",
		"TROUPE_ROUTE_WAIT=" + m.cfg.RouteWait.String(), "TROUPE_MAX_TURNS=" + strconv.Itoa(m.cfg.MaxTurns), "TROUPE_DRAIN=" + m.cfg.DrainTimeout.String(),
	}
	edge, tokens := m.Credentials.ClientPortConfig()
	if edge.Cert != "" {
		env = append(env, "TROUPE_CLIENT_TLS_CERT="+edge.Cert, "TROUPE_CLIENT_TLS_KEY="+edge.Key)
	}
	if tokens.Tokens != "" {
		env = append(env, "TROUPE_CLIENT_TOKENS="+tokens.Tokens)
	}
	return env
}

func workerEnvironment(m *Mesh, p Part) []string {
	if added, ok := m.programs[p]; ok {
		return append([]string{"TROUPE_INSTANCE_ID=" + added.Instance, "TROUPE_DRAIN=" + added.DrainTimeout.String()}, added.Env...)
	}
	return []string{"TROUPE_AGENT=" + m.programs.agentOf(p), "TROUPE_DOCS=" + documentsDir(), "TROUPE_DRAIN=" + defaultDrain.String()}
}

// stop sends SIGTERM and requires exit code 0.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		p.kill()
		return errors.New("the process still ran " + waitTimeout.String() + " after SIGTERM")
	}
}

func (p *process) wait() error { <-p.done; return p.err }

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
