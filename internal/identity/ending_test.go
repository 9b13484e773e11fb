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

// A certificate whose end nobody saw coming is told of, before it and behind it, though nobody
// connects: that of a process, and that for clients.
func TestWatch_SaysThatACertificateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir := authority(t), t.TempDir()
		renew := func() Config { return write(t, dir, ca, ca.certify(t, paper(t, memoryID))) } // for an hour
		cfg := renew()
		core, logs := observer.New(zap.WarnLevel)
		self, err := Open(cfg, Memory, "", zap.New(core))
		require.NoError(t, err)
		shown, err := Edge{Cert: cfg.Cert, Key: cfg.Key}.Open(zap.New(core))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { Watch(ctx, self, shown, (*Source)(nil), (*Shown)(nil)) })
		in := func(d time.Duration) (said []string) {
			time.Sleep(d)
			synctest.Wait()
			for _, line := range logs.TakeAll() {
				require.Contains(t, line.ContextMap(), "until")
				said = append(said, line.Level.String()+": "+line.Message)
			}
			return said
		}
		const soon, over = "warn: the certificate ends soon, and none was laid in its place",
			"error: the certificate has ended, and nobody accepts it any more; replace it"
		require.Empty(t, in(50*time.Minute))
		require.Equal(t, []string{soon, soon}, in(5*time.Minute), "once of each")
		require.Equal(t, []string{over, over}, in(6*time.Minute))
		require.Len(t, in(3*time.Hour), 6, "each hour")
		renew()
		require.Empty(t, in(50*time.Minute))
		require.Equal(t, []string{soon, soon}, in(5*time.Minute), "the next one too")
		stop()
		watching.Wait()
	})
}

// One that lives for long is told of each day, and not all the time.
func TestWatch_RemindsOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := authority(t)
		paper := paper(t)
		paper.NotAfter = time.Now().Add(365 * 24 * time.Hour)
		core, logs := observer.New(zap.WarnLevel)
		var e ending
		leaf := ca.certify(t, paper).Leaf
		for time.Now().Before(leaf.NotAfter) {
			e.tell(zap.New(core), leaf)
			time.Sleep(time.Hour)
		}
		require.Equal(t, 37, logs.Len())
	})
}

func TestEdge_WantsACertificateThatIsValidNow(t *testing.T) {
	ca, dir := authority(t), t.TempDir()
	over, early := paper(t), paper(t)
	over.NotAfter, early.NotBefore = time.Now().Add(-time.Second), time.Now().Add(time.Minute)
	for _, not := range []*Config{new(write(t, t.TempDir(), ca, ca.certify(t, over))), new(write(t, t.TempDir(), ca, ca.certify(t, early)))} {
		_, err := Edge{Cert: not.Cert, Key: not.Key}.Open(zap.NewNop())
		require.ErrorContains(t, err, "--client-tls-cert: "+not.Cert+" is valid from ")
		require.ErrorContains(t, err, "and not now")
	}
	cfg := write(t, dir, ca, ca.certify(t, paper(t)))
	log, next := warnings(t)
	shown, err := Edge{Cert: cfg.Cert, Key: cfg.Key}.Open(log)
	require.NoError(t, err)
	first := shown.current()
	for range 2 { // the same fault is news when a good file came between
		write(t, dir, ca, ca.certify(t, over))
		require.Same(t, first, shown.current())
		require.Same(t, first, shown.current())
		require.Contains(t, next()["error"], "and not now")
		require.NoError(t, os.WriteFile(cfg.Cert, []byte(first.from.cert), 0o600))
		require.NoError(t, os.WriteFile(cfg.Key, []byte(first.from.key), 0o600))
		require.Same(t, first, shown.current())
	}
	write(t, dir, ca, ca.certify(t, paper(t)))
	require.NotSame(t, first, shown.current())
}

func TestMeasure_TellsTheCertificatesOfAProcessApart(t *testing.T) {
	ca := authority(t)
	self := open(t, ca, Orchestrator, "", zap.NewNop())
	shown, err := edge(t, ca).Open(zap.NewNop())
	require.NoError(t, err)
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	require.NoError(t, self.Measure(meter))
	require.NoError(t, shown.Measure(meter))
	require.NoError(t, (*Source)(nil).Measure(meter))
	require.NoError(t, (*Shown)(nil).Measure(meter))
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
