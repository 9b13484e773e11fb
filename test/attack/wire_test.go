package attack

import (
	"bytes"
	"compress/gzip"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/test/rig"
)

const (
	listAgents  = "/troupe.v1.OrchestratorService/ListAgents"
	orchestrate = "/troupe.v1.OrchestratorService/Orchestrate"
	watchTrace  = "/troupe.v1.OrchestratorService/WatchTrace"
	getSession  = "/troupe.v1.SessionService/GetSession"
	commitStep  = "troupe.v1.MemoryService/CommitStep" // without its leading slash
)

// attacks lists the attacks that run against one mesh while a good client makes calls.
var attacks = []struct {
	name string
	make func(t *testing.T, m *rig.Mesh)
}{
	{"a path without a slash", sendPathWithoutSlash},
	{"10,000 streams that are reset at once", resetStreamsRapidly},
	{"a flood of pings", floodWithPings},
	{"a reader that takes nothing", stallWindow},
	{"a handshake that does not end", holdIncompleteHandshakes},
	{"headers of 1 MiB", sendHugeHeaders},
	{"a message of 4 MiB and a byte", sendOversizedMessage},
	{"frames that end early", sendTruncatedFrames},
	{"100,000 unknown fields", sendUnknownFields},
	{"10,000 levels", sendNestedMessage},
	{"text that is no UTF-8", sendInvalidUTF8},
	{"1 MiB that becomes 1 GiB", sendGzipBomb},
	{"more connections than an address may have", openManyConnections},
}

// During each attack all calls of a good client succeed. Afterwards the mesh works and uses at most 64 MiB more
// memory than before.
func TestMesh_SurvivesMalformedTraffic(t *testing.T) {
	m := rig.StartInProcess(t, rig.Config{})
	requireTurnSucceeds(t, m)
	before := heapInUse()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			g := startClient(t, m)
			a.make(t, m)
			require.Positive(t, g.finish(t))
		})
	}
	requireTurnSucceeds(t, m)
	require.Less(t, heapInUse(), before+64<<20)
}

// heapInUse returns the number of heap bytes in use after a garbage collection.
func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A path without its leading slash names no method. Interceptors that compare paths must not let it pass
// (CVE-2026-33186).
func sendPathWithoutSlash(t *testing.T, m *rig.Mesh) {
	for _, path := range []string{
		"troupe.v1.SessionService/DeleteSession", "//troupe.v1.SessionService/DeleteSession",
		"troupe.v1.OrchestratorService/ListAgents", "", "/", "*",
	} {
		p := connect(t, m.Address(rig.Orchestrator))
		require.NoError(t, p.openStream(1, path))
		require.NoError(t, p.WriteData(1, true, grpcFrame(nil)))
		require.Contains(t, []string{"12", "7", ""}, p.status(1), "path %q", path)
		require.NoError(t, p.Close())
	}
	for _, id := range []identity.ID{{Role: identity.Orchestrator}, {Role: identity.Worker, Name: rig.Agents[0]}} {
		_, err := sendBytes(t.Context(), m.DialAs(id, rig.Memory), "/"+commitStep, nil)
		require.Contains(t, []codes.Code{codes.PermissionDenied, codes.InvalidArgument, codes.Unauthenticated}, status.Code(err), "%s with a slash: %v",
			id.Role, err)
	}
	p := connectTLS(t, m.Address(rig.Memory), m.Credentials.TLSConfig(identity.Orchestrator))
	require.NoError(t, p.openStream(1, commitStep))
	require.NoError(t, p.WriteData(1, true, grpcFrame(nil)))
	require.Equal(t, "12", p.status(1))
}

func resetStreamsRapidly(t *testing.T, m *rig.Mesh) {
	p := connect(t, m.Address(rig.Orchestrator))
	go func() { p.awaitGoAway() }()
	for n := range 10_000 {
		stream := uint32(2*n + 1)
		if p.openStream(stream, watchTrace) != nil || p.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			return // the server may close the connection
		}
	}
}

func floodWithPings(t *testing.T, m *rig.Mesh) {
	p := connect(t, m.Address(rig.Orchestrator))
	go func() {
		for p.WritePing(false, [8]byte{}) == nil {
		}
	}()
	code, told := p.awaitGoAway()
	if told { // it may be lost after the pings
		require.Equal(t, http2.ErrCodeEnhanceYourCalm, code)
	}
}

// Many streams have a flow control window of 0, so their responses are stuck. Only these streams may block.
func stallWindow(t *testing.T, m *rig.Mesh) {
	for range 20 {
		p := connect(t, m.Address(rig.Orchestrator), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for n := range 20 {
			require.NoError(t, p.openStream(uint32(2*n+1), listAgents))
			require.NoError(t, p.WriteData(uint32(2*n+1), true, grpcFrame(nil)))
		}
	}
	requireTurnSucceeds(t, m)
}

// The server disconnects a client that stops in the middle of its handshake, wherever it stops.
func holdIncompleteHandshakes(t *testing.T, m *rig.Mesh) {
	began := time.Now()
	var conns []net.Conn
	for _, c := range []struct {
		at    rig.Part
		first string
	}{
		{rig.Memory, ""},
		{rig.Memory, "\x16\x03\x01\x02\x00\x01"},
		{rig.Worker(rig.Agents[0]), "\x16"},
		{rig.Orchestrator, ""},
		{rig.Orchestrator, http2.ClientPreface[:10]},
		{rig.Orchestrator, http2.ClientPreface},
		{rig.Orchestrator, http2.ClientPreface + "\x00\x00"},
	} {
		conn := dial(t, m.Address(c.at))
		defer func() { _ = conn.Close() }()
		_, err := conn.Write([]byte(c.first))
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	for n, conn := range conns {
		require.NoError(t, conn.SetReadDeadline(began.Add(waitTimeout)))
		var err error
		for err == nil {
			_, err = conn.Read(make([]byte, 1<<10))
		}
		timeout, ok := err.(net.Error) //nolint:errorlint // of the connection itself
		require.False(t, ok && timeout.Timeout(), "connection %d is open for %s", n, time.Since(began))
	}
}

func sendHugeHeaders(t *testing.T, m *rig.Mesh) {
	p := connect(t, m.Address(rig.Orchestrator))
	block := p.headerBlock(listAgents, hpack.HeaderField{Name: "x", Value: strings.Repeat("\x01", 1<<20)})
	const piece = 16 << 10
	err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:piece], EndStream: true})
	for rest := block[piece:]; err == nil && len(rest) > 0; {
		n := min(piece, len(rest))
		err = p.WriteContinuation(1, n == len(rest), rest[:n])
		rest = rest[n:]
	}
	require.NotEqual(t, "0", p.status(1))
}

func sendOversizedMessage(t *testing.T, m *rig.Mesh) {
	body := protowire.AppendTag(nil, 1, protowire.BytesType)
	body = protowire.AppendBytes(body, make([]byte, 4<<20+1-5))
	require.Len(t, body, 4<<20+1)
	for _, method := range []string{orchestrate, getSession} {
		_, err := sendBytes(t.Context(), m.Conn, method, body)
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	}
	_, err := sendBytes(t.Context(), m.DialAs(identity.ID{Role: identity.Orchestrator}, rig.Memory), "/troupe.v1.MemoryService/BeginTurn", make([]byte,
		16<<20+1))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
}

func sendTruncatedFrames(t *testing.T, m *rig.Mesh) {
	for _, body := range [][]byte{{0, 0, 0, 1, 0, 'a'}, {0, 0xff, 0xff, 0xff, 0xff}, {0, 0}, {9, 0, 0, 0, 0}, {1, 0, 0, 0, 1, 'a'}} {
		p := connect(t, m.Address(rig.Orchestrator))
		require.NoError(t, p.openStream(1, getSession))
		require.NoError(t, p.WriteData(1, true, body))
		require.NotEqual(t, "0", p.status(1), "%v", body)
		require.NoError(t, p.Close())
	}
	p := connect(t, m.Address(rig.Orchestrator))
	_, err := p.Write([]byte{0, 1, 0, 0 /* DATA */, 0, 0, 0, 0, 1, 'a'}) // 256 bytes are announced
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

func sendUnknownFields(t *testing.T, m *rig.Mesh) {
	var body []byte
	for n := range 100_000 {
		body = protowire.AppendVarint(protowire.AppendTag(body, protowire.Number(1000+n), protowire.VarintType), 1)
	}
	answers, err := sendBytes(t.Context(), m.Conn, listAgents, body)
	require.Equal(t, 1, answers, "%v", err)
}

func sendNestedMessage(t *testing.T, m *rig.Mesh) {
	var group []byte
	for range 20_000 {
		group = protowire.AppendTag(group, 1000, protowire.StartGroupType)
	}
	for range 20_000 {
		group = protowire.AppendTag(group, 1000, protowire.EndGroupType)
	}
	_, err := sendBytes(t.Context(), m.Conn, listAgents, group)
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	message := []byte{}
	for range 10_000 {
		message = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), message)
		if len(message) > 1<<20 {
			break
		}
	}
	_, err = sendBytes(t.Context(), m.Conn, orchestrate, message)
	require.NotEqual(t, codes.OK, status.Code(err))
}

func sendInvalidUTF8(t *testing.T, m *rig.Mesh) {
	_, err := sendBytes(t.Context(), m.Conn, getSession, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff\xfe"))
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
}

// The server does not decompress a message beyond the size limit.
func sendGzipBomb(t *testing.T, m *rig.Mesh) {
	var zeros bytes.Buffer
	z := gzip.NewWriter(&zeros)
	_, err := z.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	bomb := bytes.Repeat(zeros.Bytes(), 1024)
	framed := grpcFrame(bomb)
	framed[0] = 1

	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before := stats.TotalAlloc
	p := connect(t, m.Address(rig.Orchestrator))
	require.NoError(t, p.openStream(1, listAgents, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}))
	go func() { // the flow control window opens as the server reads
		for len(framed) > 0 {
			n := min(16<<10, len(framed))
			if p.WriteData(1, n == len(framed), framed[:n]) != nil {
				return
			}
			framed = framed[n:]
		}
	}()
	require.Contains(t, []string{"8", "12", ""}, p.status(1))
	runtime.ReadMemStats(&stats)
	require.Less(t, stats.TotalAlloc-before, uint64(256<<20))
}

// The server closes connections beyond the limit without an answer and keeps the existing ones.
func openManyConnections(t *testing.T, m *rig.Mesh) {
	open := 0
	for range 64 {
		conn := dial(t, m.Address(rig.Orchestrator))
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(waitTimeout)))
		if n, _ := conn.Read(make([]byte, 1)); n == 1 {
			open++
		}
	}
	require.LessOrEqual(t, open, 32) // connections of earlier attacks may still be open
	require.Positive(t, open)
}
