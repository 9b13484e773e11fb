package rpc

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// startServerWithConfig starts a server and returns a client and the server's address.
func startServerWithConfig(t *testing.T, cfg Config, s *fakeSessions, board *probe.Board) (troupev1.SessionServiceClient, string) {
	t.Helper()
	return newServerWithTelemetry(t, telemetry.Discard(), cfg, s, board)
}

func newServerWithTelemetry(t *testing.T, tel *telemetry.Telemetry, cfg Config, s *fakeSessions, board *probe.Board) (troupev1.SessionServiceClient, string) {
	t.Helper()
	server, err := NewServer(tel, cfg)
	require.NoError(t, err)
	troupev1.RegisterSessionServiceServer(server, s)
	if board != nil {
		server.FollowBoard(board)
	}
	lis, err := Listen("--grpc-addr", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	conn, err := Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-done)
	})
	return troupev1.NewSessionServiceClient(conn), lis.Addr().String()
}

func returnSession(context.Context) (*troupev1.GetSessionResponse, error) {
	return &troupev1.GetSessionResponse{}, nil
}

// trustClaimedIdentity is an Authenticator that accepts the name in the call's metadata without proof.
func trustClaimedIdentity(ctx context.Context) (identity.Principal, error) {
	if names := metadata.ValueFromIncomingContext(ctx, "name"); len(names) == 1 {
		return identity.Principal{Role: identity.Client, Tenant: "t", Name: names[0]}, nil
	}
	return identity.Principal{}, failure.New(failure.UserUnauthenticated, "call", "a token is needed")
}

func withIdentity(t *testing.T, name string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "name", name)
}

func TestServer_LimitsOnlyTheCallerThatExceedsTheRate(t *testing.T) {
	called := 0
	client, _ := startServerWithConfig(t, Config{Authenticate: trustClaimedIdentity, Rates: rate.New(rate.Table{rate.Reads: {Rate: 0.001, Burst: 2}})},
		&fakeSessions{get: func(context.Context) (*troupev1.GetSessionResponse, error) {
			called++
			return &troupev1.GetSessionResponse{}, nil
		}}, nil)
	req := &troupev1.GetSessionRequest{SessionId: "s"}
	for range 2 {
		_, err := client.GetSession(withIdentity(t, "a"), req)
		require.NoError(t, err)
	}
	_, err := client.GetSession(withIdentity(t, "a"), req)
	err = grpcfailure.FromStatus("test", err)
	require.True(t, failure.Is(err, failure.PolicyRateLimit), "%v", err)
	after, ok := failure.RetryAfter(err)
	require.True(t, ok)
	require.Greater(t, after, time.Second)
	require.ErrorContains(t, err, "raise reads in the file of --rates")
	require.Equal(t, 2, called)

	_, err = client.GetSession(withIdentity(t, "b"), req)
	require.NoError(t, err)
	stream, err := client.GetArtifact(withIdentity(t, "a"), &troupev1.GetArtifactRequest{SessionId: "s", Name: "n"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.PolicyRateLimit), "streams count, too: %v", err)
}

// After too many failed authentications, calls from the address are rejected before their credentials are checked.
func TestServer_RejectsAddressesAfterFailedAuthentications(t *testing.T) {
	asked := 0
	client, _ := startServerWithConfig(t, Config{
		Authenticate: func(ctx context.Context) (identity.Principal, error) { asked++; return trustClaimedIdentity(ctx) },
		Rates:        rate.New(rate.Table{rate.Failures: {Rate: 0.001, Burst: 3}}),
	}, &fakeSessions{get: returnSession}, nil)
	req := &troupev1.GetSessionRequest{SessionId: "s"}
	for range 10 {
		_, err := client.GetSession(withIdentity(t, "a"), req)
		require.NoError(t, err, "authenticated calls do not count")
	}
	for n := range 5 {
		_, err := client.GetSession(t.Context(), req)
		want := failure.UserUnauthenticated
		if n >= 3 {
			want = failure.PolicyRateLimit
		}
		require.True(t, failure.Is(grpcfailure.FromStatus("test", err), want), "%v", err)
	}
	_, err := client.GetSession(withIdentity(t, "a"), req)
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.PolicyRateLimit), "%v", err)
	require.Equal(t, 13, asked)
}

// A call from an address is counted before any work is done for it.
func TestServer_LimitsCallsFromAnAddress(t *testing.T) {
	client, _ := startServerWithConfig(t, Config{
		Rates: rate.New(rate.Table{rate.Streams: {Rate: 0.001, Burst: 2}}),
		Authenticate: func(context.Context) (identity.Principal, error) {
			return identity.Principal{Role: identity.Admin}, nil
		},
	}, &fakeSessions{get: returnSession}, nil)
	for n := range 4 {
		_, err := client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
		require.Equal(t, n >= 2, failure.Is(grpcfailure.FromStatus("test", err), failure.PolicyRateLimit), "%v", err)
	}
}

// An address cannot have more connections than its limit. Closing one allows a new one.
func TestServer_LimitsConnectionsFromAnAddress(t *testing.T) {
	client, addr := startServerWithConfig(t, Config{PeerConnections: 3}, &fakeSessions{get: returnSession}, nil)
	_, err := client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"}) // opens the first connection
	require.NoError(t, err)
	open := func() (net.Conn, bool) {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, _ := conn.Read(make([]byte, 1)) // an HTTP/2 server sends the first bytes
		return conn, n == 1
	}
	var conns []net.Conn
	for n := range 5 {
		conn, ok := open()
		require.Equal(t, n < 2, ok, "connection %d", n)
		conns = append(conns, conn)
	}
	_, err = client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	require.NoError(t, err, "existing connections stay open")
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool {
		conn, ok := open()
		require.NoError(t, conn.Close())
		return ok
	}, 10*time.Second, 10*time.Millisecond)
}

// After five panics in a minute the process is not ready, but it still answers calls.
func TestServer_IsNotReadyAfterManyPanics(t *testing.T) {
	board := probe.NewBoard()
	client, _ := startServerWithConfig(t, Config{}, &fakeSessions{get: func(context.Context) (*troupev1.GetSessionResponse, error) { panic("secret") }}, board)
	for n := range 6 {
		if n < 5 {
			require.NoError(t, board.Ready(), strconv.Itoa(n))
		} else {
			require.EqualError(t, board.Ready(), "panics: 5 panics within a minute; see the log")
		}
		_, err := client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
		require.NotContains(t, err.Error(), "secret")
	}
	stream, err := client.GetArtifact(t.Context(), &troupev1.GetArtifactRequest{SessionId: "s", Name: "n"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.Unknown), "%v", err)
	require.NotContains(t, err.Error(), "secret")
}
