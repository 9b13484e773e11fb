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

// Binaries runs the three services as the binaries that are shipped, each a process.
func Binaries(t testing.TB, cfg Config) *Mesh {
	t.Helper()
	dir, err := build()
	require.NoError(t, err)
	return start(t, cfg, func(m *Mesh, p Part) service { return launchProcess(m, dir, p) })
}

// build builds the binaries and those of Programs once for all tests of a process.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "troupe-bin")
	if err != nil {
		return "", err
	}
	built = dir
	return dir, gobuild.Build(root(), dir+"/", "./services/memory", "./services/orchestrator", "./services/worker", "./test/rig/...")
})

var built string

// Clean removes the binaries; a TestMain calls it at the end.
func Clean() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}

type child struct {
	cmd   *exec.Cmd
	log   string // file
	ended chan struct{}
	err   error // valid once ended is closed
}

func launchProcess(m *Mesh, dir string, p Part) service {
	m.t.Helper()
	program, _, _ := strings.Cut(string(p), " ")
	if brought, ok := m.programs[p]; ok {
		program = path.Base(brought.Package)
	}
	output, err := os.Create(filepath.Join(m.t.TempDir(), program+".log"))
	require.NoError(m.t, err)
	m.logs = append(m.logs, output.Name())
	c := &child{cmd: exec.Command(filepath.Join(dir, program)), log: output.Name(), ended: make(chan struct{})}
	c.cmd.Env = append(append(os.Environ(), "GOTRACEBACK=crash"), m.environment(p)...) // a crash tells all it can
	c.cmd.Stdout, c.cmd.Stderr = output, output
	require.NoError(m.t, c.cmd.Start())
	go func() { c.err = c.cmd.Wait(); close(c.ended) }()
	m.t.Cleanup(func() {
		_ = output.Close()
		if m.t.Failed() {
			said, _ := os.ReadFile(output.Name())
			m.t.Logf("%s said:\n%s", p, said)
		}
	})
	return c
}

// environment configures a part the way a cluster does.
func (m *Mesh) environment(p Part) []string {
	program, agent, _ := strings.Cut(strings.TrimSuffix(string(p), " second"), " ")
	env := []string{
		"TROUPE_GRPC_ADDR=" + m.grpcAddr(p), "TROUPE_HTTP_ADDR=" + m.httpAddr(p),
		"TROUPE_LOG_LEVEL=" + cmp.Or(m.cfg.LogLevel, "info"), "TROUPE_AGENTS=" + agentsDir(),
	}
	if m.keys != nil {
		self := m.identityOf(p)
		env = append(env, "TROUPE_TLS_CERT="+self.Cert, "TROUPE_TLS_KEY="+self.Key, "TROUPE_TLS_CA="+self.CA)
	} else if m.devCA != "" {
		env = append(env, "TROUPE_TLS_DEV_CA="+m.devCA)
	}
	if m.cfg.Collector != "" {
		env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+m.cfg.Collector)
	}
	if m.cfg.AuditLogs != "" {
		env = append(env, "TROUPE_AUDIT_LOG="+m.AuditLog(p))
	}
	stores := []string{"TROUPE_ETCD=" + strings.Join(m.etcd.Endpoints(), ","), "TROUPE_MEMORY=" + m.grpcAddr(Memory), "TROUPE_DRAIN=" + drain.String()}
	if brought, ok := m.programs[p]; ok {
		env = append(append(env, stores...), "TROUPE_INSTANCE_ID="+brought.Instance, "TROUPE_DRAIN="+brought.Drain.String())
		return append(env, brought.Env...)
	}
	switch program {
	case "memory":
		if m.cfg.Shutting {
			env = append(env, "TROUPE_ETCD="+strings.Join(m.etcd.Endpoints(), ","))
		}
		return append(env, "TROUPE_REDIS="+m.RedisURL("memory"))
	case "orchestrator":
		edge, clients := m.edge()
		if m.keys != nil {
			env = append(env, "TROUPE_CLIENT_TLS_CERT="+edge.Cert, "TROUPE_CLIENT_TLS_KEY="+edge.Key)
		}
		if m.tokens != "" {
			env = append(env, "TROUPE_CLIENT_TOKENS="+clients.Tokens)
		}
		return append(append(env, stores...), "TROUPE_AGENTS="+m.workflows(), "TROUPE_REDIS="+m.RedisURL("orchestrator"),
			"TROUPE_ROUTE_WAIT="+m.cfg.RouteWait.String(), "TROUPE_MAX_TURNS="+strconv.Itoa(m.cfg.MaxTurns), "TROUPE_REFLECTION=true",
			"TROUPE_DRAIN="+m.cfg.Drain.String())
	default:
		return append(append(env, stores...), "TROUPE_AGENT="+agent, "TROUPE_DOCS="+docs())
	}
}

// AuditLog is the file of a part, of binaries that keep one.
func (m *Mesh) AuditLog(p Part) string {
	return filepath.Join(m.cfg.AuditLogs, strings.ReplaceAll(string(p), " ", "-")+".jsonl")
}

// stop sends SIGTERM; the exit code must be 0.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.ended:
		return c.err
	case <-timer.C:
		c.kill()
		return errors.New("still there " + patience.String() + " after SIGTERM")
	}
}

func (c *child) wait() error { <-c.ended; return c.err }

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}
