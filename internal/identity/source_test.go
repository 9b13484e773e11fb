package identity

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const memoryID = "spiffe://example.org/memory"

// Open rejects an unusable configuration. Its error says what is wrong, and names the flag or the file if one is at fault.
func TestOpen_SaysWhatIsWrong(t *testing.T) {
	ca, foreign := newCA(t), newCA(t)
	valid := func(t *testing.T) Config {
		return writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t, memoryID)))
	}
	expired := certTemplate(t, memoryID)
	expired.NotAfter = time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		cfg  func(*testing.T) Config
		says []string
	}{
		"no key": {
			func(t *testing.T) Config { c := valid(t); c.Key = ""; return c },
			[]string{"--tls-cert, --tls-key and --tls-ca belong together"},
		},
		"files and development CA": {func(t *testing.T) Config { c := valid(t); c.DevCA = t.TempDir(); return c }, []string{"--tls-dev-ca", "either"}},
		"missing file": {
			func(t *testing.T) Config { c := valid(t); c.CA = "/no/such/file"; return c },
			[]string{"--tls-ca: open /no/such/file: no such file"},
		},
		"no PEM": {func(t *testing.T) Config { c := valid(t); c.Cert = garbageFile(t); return c }, []string{
			"--tls-cert: ", "garbage",
			"not a PEM certificate and key pair",
		}},
		"no CA": {func(t *testing.T) Config { c := valid(t); c.CA = garbageFile(t); return c }, []string{
			"--tls-ca: ", "garbage",
			"contains no PEM certificates",
		}},
		"another key": {func(t *testing.T) Config { c := valid(t); c.Key = valid(t).Key; return c }, []string{
			"--tls-cert: ",
			"not a PEM certificate and key pair",
		}},
		"another CA": {func(t *testing.T) Config {
			c := valid(t)
			c.CA = writeFiles(t, t.TempDir(), foreign, foreign.certify(t, certTemplate(t, memoryID))).CA
			return c
		}, []string{"peers would reject", "unknown authority"}},
		"expired": {func(t *testing.T) Config { return writeFiles(t, t.TempDir(), ca, ca.certify(t, expired)) }, []string{"--tls-cert: ", "expired"}},
		"two URIs": {func(t *testing.T) Config {
			return writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t, memoryID, "spiffe://example.org/orchestrator")))
		}, []string{"--tls-cert: ", "exactly one URI"}},
		"no URI": {func(t *testing.T) Config { return writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t))) }, []string{"exactly one URI"}},
		"unknown path": {func(t *testing.T) Config {
			return writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t, "spiffe://example.org/x")))
		}, []string{"is not a process of a mesh"}},
		"another domain": {
			func(t *testing.T) Config { c := valid(t); c.TrustDomain = "example.com"; return c },
			[]string{`--trust-domain: the certificate belongs to "example.org", not to "example.com"`},
		},
		"another role": {func(t *testing.T) Config {
			return writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t, "spiffe://example.org/orchestrator")))
		}, []string{"--tls-cert: the certificate belongs to spiffe://example.org/orchestrator; this process needs one for spiffe://example.org/memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(c.cfg(t), Memory, "", zap.NewNop())
			require.Nil(t, s)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
	cfg := valid(t)
	cfg.TrustDomain = domain
	s, err := Open(cfg, Memory, "", zap.NewNop())
	require.NoError(t, err)
	require.Equal(t, ID{domain, Memory, ""}, s.id)
	s, err = Open(Config{}, Memory, "", zap.NewNop())
	require.NoError(t, err)
	require.Nil(t, s)
}

func garbageFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(name, []byte("garbage"), 0o600))
	return name
}

// Every certificate, every key and the CA are replaced while calls run over open and new connections. No call
// fails. The trusted CAs go through the usual three states: the old one, both, and the new one.
func TestSource_ReplacesKeysDuringCalls(t *testing.T) {
	before, after := newCA(t), newCA(t)
	dirs := map[ID]string{{domain, Memory, ""}: t.TempDir(), {domain, Worker, "a"}: t.TempDir()}
	lay := func(issuer *CA, cas ...*CA) {
		for id, dir := range dirs {
			cfg := writeFiles(t, t.TempDir(), issuer, issuer.certify(t, certTemplate(t, id.String())))
			var all strings.Builder
			for _, ca := range cas {
				all.Write(pemBlock("CERTIFICATE", ca.cert.Raw))
			}
			require.NoError(t, os.WriteFile(cfg.CA, []byte(all.String()), 0o600))
			for _, file := range []string{cfg.Cert, cfg.Key, cfg.CA} { // not atomically
				require.NoError(t, os.Rename(file, filepath.Join(dir, filepath.Base(file))))
			}
		}
	}
	lay(before, before)
	source := func(role Role, agent string) *Source {
		dir := dirs[ID{domain, role, agent}]
		s, err := Open(Config{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}, role, agent,
			zap.NewNop())
		require.NoError(t, err)
		return s
	}
	server, client := source(Memory, ""), source(Worker, "a")
	var served atomic.Int64
	address := serveWith(t, server.ServerCredentials(), func(ID, bool) { served.Add(1) })

	lasting, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(client.ClientCredentials(Memory, "")))
	require.NoError(t, err)
	defer func() { require.NoError(t, lasting.Close()) }()
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	stop := make(chan struct{})
	again := func(do func() error) {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	again(func() error {
		_, err := healthpb.NewHealthClient(lasting).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	})
	again(func() error { return callOnce(t, client.ClientCredentials(Memory, ""), address) })
	more := func() { // waits for further calls
		for until := served.Load() + 40; served.Load() < until && failed.Load() == nil; {
			require.NoError(t, callOnce(t, client.ClientCredentials(Memory, ""), address))
		}
	}
	more()
	lay(before, before, after)
	more()
	lay(after, before, after)
	more()
	lay(after, after)
	more()
	close(stop)
	callers.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
	for _, s := range []*Source{server, client} {
		require.NoError(t, s.current().leaf().CheckSignatureFrom(after.cert), "%s still has the old certificate", s.id)
	}
	old := openSource(t, before, Worker, "a", zap.NewNop())
	require.Error(t, callOnce(t, old.ClientCredentials(Memory, ""), address), "the old CA is no longer trusted")
}

// An invalid file is logged once, and the last valid keys stay in use.
func TestSource_KeepsTheLastValidKeys(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	cfg := writeFiles(t, dir, ca, ca.certify(t, certTemplate(t, memoryID)))
	log, next := newWarningLog(t)
	s, err := Open(cfg, Memory, "", log)
	require.NoError(t, err)
	first := s.current()
	require.NoError(t, os.WriteFile(cfg.Key, nil, 0o600))
	require.Same(t, first, s.current())
	require.Same(t, first, s.current())
	said := next()
	require.Equal(t, "the new keys are invalid; the previous ones stay in use", said["message"])
	require.Contains(t, said["error"], cfg.Key)

	writeFiles(t, dir, ca, ca.certify(t, certTemplate(t, "spiffe://example.org/orchestrator")))
	require.Same(t, first, s.current(), "the id of a process never changes")
	require.Contains(t, next()["error"], "the new certificate belongs to spiffe://example.org/orchestrator")

	writeFiles(t, dir, ca, ca.certify(t, certTemplate(t, memoryID)))
	require.NotSame(t, first, s.current())
}

func TestSource_MeasuresRemainingValidity(t *testing.T) {
	s, err := Open(Config{DevCA: t.TempDir()}, Memory, "", zap.NewNop())
	require.NoError(t, err)
	reader := metric.NewManualReader()
	require.NoError(t, s.RegisterMetrics(metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")))
	var seen metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &seen))
	point := seen.ScopeMetrics[0].Metrics[0].Data.(metricdata.Gauge[float64]).DataPoints[0]
	require.InDelta(t, devLifetime.Seconds(), point.Value, 60)
	id, _ := point.Attributes.Value("id")
	require.Equal(t, "spiffe://dev.troupe/memory", id.AsString())
}
