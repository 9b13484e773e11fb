package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/test/rig"
)

// BenchmarkGuarded runs the same turns on two meshes in alternating batches: one with authentication everywhere,
// and one without. The guarded mesh has mutual TLS from files, the authorization table, turn credentials, and
// client tokens over TLS. It also has users in Redis, users and TLS in etcd, rate limits and an audit log. The
// plain mesh has only the table, which then allows every caller. The reported ratio compares the medians.
// cpu-ratio compares CPU time without Redis, and is more reliable on a busy machine.
func BenchmarkGuarded(b *testing.B) {
	meshes := [2]*rig.Mesh{
		rig.StartInProcess(b, rig.Config{Unauthenticated: true, RatesFile: unlimitedRates(b)}),
		rig.StartInProcess(b, rig.Config{CertificateLifetime: time.Hour, AuditLogFolder: b.TempDir()}),
	}
	for _, turn := range []struct{ name, target, text string }{
		{"one-step", "clarification", "Tell me about it"},
		{"three-step", "research-assistant", "What may an agent write?"},
	} {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/clients=%d", turn.name, clients), func(b *testing.B) {
				var took [2][]time.Duration
				var spent [2]time.Duration
				for n := 0; b.Loop(); n++ {
					for i := range meshes {
						i = (i + n) % len(meshes) // neither mesh always runs first
						before := cpuTime(b)
						took[i] = append(took[i], runBatch(b, clients, func() error { return ask(b, meshes[i], turn.target, turn.text) })...)
						spent[i] += cpuTime(b) - before
					}
				}
				plain, guarded := median(took[0]), median(took[1])
				b.ReportMetric(plain, "plain-p50-ms")
				b.ReportMetric(guarded, "guarded-p50-ms")
				b.ReportMetric(guarded/plain, "ratio")
				b.ReportMetric(float64(spent[0].Microseconds())/1000/float64(len(took[0])), "plain-cpu-ms")
				b.ReportMetric(float64(spent[1].Microseconds())/1000/float64(len(took[1])), "guarded-cpu-ms")
				b.ReportMetric(float64(spent[1])/float64(spent[0]), "cpu-ratio")
			})
		}
	}
}

// runBatch runs turns and returns their durations. Each client runs a few turns, one after the other.
func runBatch(b *testing.B, clients int, turn func() error) []time.Duration {
	const each = 4
	took := make([]time.Duration, clients*each)
	var wg sync.WaitGroup
	for mine := range slices.Chunk(took, each) {
		wg.Go(func() {
			for i := range mine {
				began := time.Now()
				if err := turn(); err != nil {
					b.Error(err)
					return
				}
				mine[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return took
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// unlimitedRates writes a rates file that sets no limits.
func unlimitedRates(b *testing.B) string {
	var text strings.Builder
	for class := range rate.Defaults() {
		fmt.Fprintf(&text, "%s: {rate: 0}\n", class)
	}
	file := filepath.Join(b.TempDir(), "rates.yaml")
	require.NoError(b, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}
