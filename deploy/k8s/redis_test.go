package k8s_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/test/loopback"
)

// redisPod runs the Redis container of the manifests as a local process. Its mounted volumes are in a folder.
type redisPod struct {
	t       *testing.T
	mesh    mesh
	dir     string
	address string
	ca      *identity.CA
	server  *exec.Cmd
}

func newRedisPod(t *testing.T) *redisPod {
	t.Helper()
	p := &redisPod{t: t, mesh: render(t, filepath.Join("overlays", "dev")), dir: t.TempDir(), address: loopback.Address(t)}
	var err error
	p.ca, err = identity.OpenCA(t.TempDir())
	require.NoError(t, err)
	for name, data := range p.mesh.configMaps {
		if strings.HasPrefix(name, "redis-acl-") {
			p.writeMountedFile("etc/users/users.acl", data.Data["users.acl"])
		}
	}
	p.writeMountedFile("etc/passwords/memory", `a/b&c>"d`)
	p.writeMountedFile("etc/passwords/orchestrator", "other\n")
	p.writeMountedFile("run/keep", "")
	p.renewCertificate()
	t.Cleanup(p.stop)
	return p
}

// writeMountedFile writes a read-only file at the place where it is mounted.
func (p *redisPod) writeMountedFile(name, text string) {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(file), 0o700))
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		require.NoError(p.t, err)
	}
	require.NoError(p.t, os.WriteFile(file, []byte(text), 0o440))
}

// renewCertificate writes a new Redis certificate into the folder of its Secret.
func (p *redisPod) renewCertificate() {
	p.t.Helper()
	made, err := p.ca.WriteServerFiles(p.t.TempDir(), "redis")
	require.NoError(p.t, err)
	for name, file := range map[string]string{"tls.crt": made.Cert, "tls.key": made.Key, "ca.crt": made.CA} {
		text, err := os.ReadFile(file)
		require.NoError(p.t, err)
		p.writeMountedFile("etc/tls/"+name, string(text))
	}
}

// toLocalPaths replaces the paths and the port of the container with local ones.
func (p *redisPod) toLocalPaths(text string) string {
	return strings.NewReplacer("/etc/redis", p.dir+"/etc", "/run/redis", p.dir+"/run", "/data", p.dir, "6379", p.address[len("127.0.0.1:"):],
		"redis-cli ", "redis-cli -p "+p.address[len("127.0.0.1:"):]+" ").Replace(text)
}

func (p *redisPod) container() corev1.Container { return p.mesh.workload(p.t, "redis").container(p.t) }

func (p *redisPod) start() {
	p.t.Helper()
	c := p.container()
	var args []string
	for _, a := range slices.Concat(c.Command[1:], c.Args) {
		args = append(args, p.toLocalPaths(a))
	}
	p.server = exec.Command(c.Command[0], append(args, "--bind", "127.0.0.1", "--logfile", filepath.Join(p.dir, "log"))...)
	require.NoError(p.t, p.server.Start())
	require.Eventually(p.t, func() bool { return p.runLivenessProbe(c.ReadinessProbe) }, 20*time.Second, 20*time.Millisecond)
}

func (p *redisPod) stop() { _ = p.server.Process.Kill(); _ = p.server.Wait() }

func (p *redisPod) runLivenessProbe(by *corev1.Probe) bool {
	return exec.Command("sh", "-c", p.toLocalPaths(by.Exec.Command[2])).Run() == nil
}

// sendCommand sends a command as the Redis user of a service, with the certificate of a process.
func (p *redisPod) sendCommand(service, process identity.Role, agent string, command ...any) error {
	p.t.Helper()
	files, err := p.ca.WriteFiles(process, agent)
	require.NoError(p.t, err)
	url := strings.Replace(environment(p.t, p.mesh.workload(p.t, string(service)))["TROUPE_REDIS"], "redis:6379", p.address, 1)
	conn, err := redisconn.New(redisconn.Config{URL: url, Security: redisconn.Security{
		CA: files.CA, Cert: files.Cert, Key: files.Key, PasswordFile: filepath.Join(p.dir, "etc/passwords", string(service)),
	}})
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, conn.Close()) }()
	return conn.Do(p.t.Context(), command...).Err()
}

// The Redis container creates its users with the given passwords, which may contain any character. It rejects
// clients that lack a certificate of the mesh or a password.
func TestRedis_StartsWithTheUsers(t *testing.T) {
	p := newRedisPod(t)
	p.start()
	require.NoError(t, p.sendCommand(identity.Memory, identity.Memory, "", "HSET", "m:x", "a", "b"))
	require.NoError(t, p.sendCommand(identity.Orchestrator, identity.Orchestrator, "", "HSET", "o:x", "a", "b"))
	require.ErrorContains(t, p.sendCommand(identity.Orchestrator, identity.Orchestrator, "", "HSET", "m:x", "a", "b"), "NOPERM")

	plain, err := exec.Command("sh", "-c", p.toLocalPaths("redis-cli -t 2 --user memory ping")).CombinedOutput()
	require.Error(t, err, "%s", plain)
	with := "redis-cli --tls --cacert " + p.dir + "/etc/tls/ca.crt "
	none, err := exec.Command("sh", "-c", p.toLocalPaths(with+"ping")).CombinedOutput()
	require.Error(t, err, "%s", none)
	own := "--cert " + p.dir + "/etc/tls/tls.crt --key " + p.dir + "/etc/tls/tls.key "
	unknown, _ := exec.Command("sh", "-c", p.toLocalPaths(with+own+"ping")).CombinedOutput()
	require.Contains(t, string(unknown), "NOAUTH")

	p.writeMountedFile("etc/passwords/memory", "guess")
	require.Error(t, p.sendCommand(identity.Memory, identity.Worker, "research", "HGETALL", "m:x"))
}

// Redis reads its certificate only when it starts. After a renewal the liveness probe fails, so the kubelet
// restarts the container. The data survives the restart.
func TestRedis_RestartsAfterCertificateRenewal(t *testing.T) {
	p := newRedisPod(t)
	p.start()
	alive := p.container().LivenessProbe
	require.NoError(t, p.sendCommand(identity.Memory, identity.Memory, "", "HSET", "m:x", "a", "b"))
	require.True(t, p.runLivenessProbe(alive))
	p.renewCertificate()
	require.False(t, p.runLivenessProbe(alive))
	p.stop()
	p.start()
	require.True(t, p.runLivenessProbe(alive))
	require.NoError(t, p.sendCommand(identity.Memory, identity.Memory, "", "HGET", "m:x", "a"))
}
