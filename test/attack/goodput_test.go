package attack

import (
	"context"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/troupe-dev/troupe/test/rig"
)

// BenchmarkGoodput measures the share of its calls that a good client still completes during an attack (1 means
// all). The attacks are 10,000 stream resets a second, as many pings, responses that are never read, and
// incomplete handshakes. The good client makes at most 1,000 calls a second. The clients and the mesh share one
// machine.
func BenchmarkGoodput(b *testing.B) {
	m := rig.StartInProcess(b, rig.Config{})
	for _, a := range []struct {
		name string
		make func(context.Context, *testing.B, *rig.Mesh)
	}{
		{"resets", repeatAttack(resetStreams)}, {"pings", repeatAttack(floodPings)}, {"stalls", repeatAttack(stallStreams)}, {"handshakes", holdHandshakes},
	} {
		b.Run(a.name, func(b *testing.B) {
			var calm, attacked int
			for b.Loop() {
				calm += measureGoodput(b, m, func(context.Context) {})
				attacked += measureGoodput(b, m, func(ctx context.Context) { a.make(ctx, b, m) })
			}
			b.ReportMetric(float64(attacked)/float64(calm), "goodput")
			b.ReportMetric(float64(calm)/float64(b.N), "calls/s")
		})
	}
}

// repeatAttack starts the attack again on a new connection whenever the server closes the old one.
func repeatAttack(attack func(context.Context, *http2Peer)) func(context.Context, *testing.B, *rig.Mesh) {
	return func(ctx context.Context, b *testing.B, m *rig.Mesh) {
		for ctx.Err() == nil {
			attack(ctx, connect(b, m.Address(rig.Orchestrator), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		}
	}
}

// measureGoodput returns the completed calls per second of a good client while an attack runs.
func measureGoodput(b *testing.B, m *rig.Mesh, other func(context.Context)) int {
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	g := startClient(b, m)
	other(ctx)
	<-ctx.Done()
	return g.finish(b)
}

// resetStreams opens and resets streams until ctx or the connection ends.
func resetStreams(ctx context.Context, p *http2Peer) {
	defer func() { _ = p.Close() }()
	go p.awaitGoAway()
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for stream := uint32(1); ctx.Err() == nil; stream += 2 {
		if stream%200 == 1 {
			<-pace.C
		}
		if p.openStream(stream, watchTrace) != nil || p.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			return
		}
	}
}

// floodPings sends pings until ctx or the connection ends.
func floodPings(ctx context.Context, p *http2Peer) {
	defer func() { _ = p.Close() }()
	go p.awaitGoAway()
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ctx.Err() == nil && p.WritePing(false, [8]byte{}) == nil; n++ {
		if n%100 == 0 {
			<-pace.C
		}
	}
}

// stallStreams opens as many streams as a connection may have and never opens their flow control windows.
func stallStreams(ctx context.Context, p *http2Peer) {
	defer func() { _ = p.Close() }()
	go p.awaitGoAway()
	for n := range uint32(256) {
		if p.openStream(2*n+1, listAgents) != nil || p.WriteData(2*n+1, true, grpcFrame(nil)) != nil {
			break
		}
	}
	<-ctx.Done()
}

// holdHandshakes opens as many connections to the memory service and the orchestrator as one address may have.
// Each connection completes only half of its handshake.
func holdHandshakes(ctx context.Context, b *testing.B, m *rig.Mesh) {
	for range 32 {
		for at, first := range map[rig.Part]string{rig.Memory: "\x16\x03\x01\x02\x00\x01", rig.Orchestrator: http2.ClientPreface[:10]} {
			conn := dial(b, m.Address(at))
			defer func() { _ = conn.Close() }()
			_, _ = conn.Write([]byte(first)) // fails for the connection beyond the limit
		}
	}
	<-ctx.Done()
}
