package identity

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The expiry of the process certificate and of the client port's certificate is logged before and after it
// happens, even without any connection.
func TestWatchCertificates_LogsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir := newCA(t), t.TempDir()
		renew := func() Config { return writeFiles(t, dir, ca, ca.certify(t, certTemplate(t, memoryID))) } // for an hour
		cfg := renew()
		core, logs := observer.New(zap.WarnLevel)
		self, err := Open(cfg, Memory, "", zap.New(core))
		require.NoError(t, err)
		shown, err := EdgeConfig{Cert: cfg.Cert, Key: cfg.Key}.Open(zap.New(core))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { WatchCertificates(ctx, self, shown, (*Source)(nil), (*EdgeSource)(nil)) })
		in := func(d time.Duration) (said []string) {
			time.Sleep(d)
			synctest.Wait()
			for _, line := range logs.TakeAll() {
				require.Contains(t, line.ContextMap(), "until")
				said = append(said, line.Level.String()+": "+line.Message)
			}
			return said
		}
		const soon, over = "warn: the certificate expires soon and was not replaced; renew it",
			"error: the certificate has expired and every peer rejects it; replace it"
		require.Empty(t, in(50*time.Minute))
		require.Equal(t, []string{soon, soon}, in(5*time.Minute), "one line for each certificate")
		require.Equal(t, []string{over, over}, in(6*time.Minute))
		require.Len(t, in(3*time.Hour), 6, "one line for each certificate and hour")
		renew()
		require.Empty(t, in(50*time.Minute))
		require.Equal(t, []string{soon, soon}, in(5*time.Minute), "also for the next certificate")
		stop()
		watching.Wait()
	})
}

// In the last tenth of its validity, a certificate with a long validity causes one warning a day.
func TestWatchCertificates_WarnsOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t)
		paper := certTemplate(t)
		paper.NotAfter = time.Now().Add(365 * 24 * time.Hour)
		core, logs := observer.New(zap.WarnLevel)
		var e expiryLog
		leaf := ca.certify(t, paper).Leaf
		for time.Now().Before(leaf.NotAfter) {
			e.logExpiry(zap.New(core), leaf)
			time.Sleep(time.Hour)
		}
		require.Equal(t, 37, logs.Len())
	})
}

func TestEdge_RejectsCertificatesNotValidNow(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	over, early := certTemplate(t), certTemplate(t)
	over.NotAfter, early.NotBefore = time.Now().Add(-time.Second), time.Now().Add(time.Minute)
	for _, not := range []*Config{new(writeFiles(t, t.TempDir(), ca, ca.certify(t, over))), new(writeFiles(t, t.TempDir(), ca, ca.certify(t, early)))} {
		_, err := EdgeConfig{Cert: not.Cert, Key: not.Key}.Open(zap.NewNop())
		require.ErrorContains(t, err, "--client-tls-cert: "+not.Cert+" is valid from ")
		require.ErrorContains(t, err, "and not now")
	}
	cfg := writeFiles(t, dir, ca, ca.certify(t, certTemplate(t)))
	log, next := newWarningLog(t)
	shown, err := EdgeConfig{Cert: cfg.Cert, Key: cfg.Key}.Open(log)
	require.NoError(t, err)
	first := shown.current()
	for range 2 { // the same error is logged again after a valid file
		writeFiles(t, dir, ca, ca.certify(t, over))
		require.Same(t, first, shown.current())
		require.Same(t, first, shown.current())
		require.Contains(t, next()["error"], "and not now")
		require.NoError(t, os.WriteFile(cfg.Cert, []byte(first.contents.cert), 0o600))
		require.NoError(t, os.WriteFile(cfg.Key, []byte(first.contents.key), 0o600))
		require.Same(t, first, shown.current())
	}
	writeFiles(t, dir, ca, ca.certify(t, certTemplate(t)))
	require.NotSame(t, first, shown.current())
}

func TestRegisterMetrics_LabelsTheCertificatesOfAProcess(t *testing.T) {
	ca := newCA(t)
	self := openSource(t, ca, Orchestrator, "", zap.NewNop())
	shown, err := newEdge(t, ca).Open(zap.NewNop())
	require.NoError(t, err)
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	require.NoError(t, self.RegisterMetrics(meter))
	require.NoError(t, shown.RegisterMetrics(meter))
	require.NoError(t, (*Source)(nil).RegisterMetrics(meter))
	require.NoError(t, (*EdgeSource)(nil).RegisterMetrics(meter))
	var seen metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &seen))
	require.Len(t, seen.ScopeMetrics[0].Metrics, 1)
	ids := map[string]string{}
	for _, point := range seen.ScopeMetrics[0].Metrics[0].Data.(metricdata.Gauge[float64]).DataPoints {
		of, _ := point.Attributes.Value("of")
		id, _ := point.Attributes.Value("id")
		ids[of.AsString()] = id.AsString()
		require.InDelta(t, time.Hour.Seconds(), point.Value, 60)
	}
	require.Equal(t, map[string]string{"mesh": "spiffe://example.org/orchestrator", "clients": ""}, ids)
}
