package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// rejectingMesh rejects every turn as the real API rejects an unknown target. It stores nothing, so an erasure
// removes nothing.
type rejectingMesh struct {
	troupev1.UnimplementedOrchestratorServiceServer
	troupev1.UnimplementedSessionServiceServer
}

func (rejectingMesh) Orchestrate(*troupev1.OrchestrateRequest, grpc.ServerStreamingServer[troupev1.OrchestrateResponse]) error {
	return failure.New(failure.NotFound, "test", `target: no workflow or agent is called "x"; see ListAgents`)
}

func (rejectingMesh) EraseUser(context.Context, *troupev1.EraseUserRequest) (*troupev1.EraseUserResponse, error) {
	return &troupev1.EraseUserResponse{Receipt: &troupev1.ErasureReceipt{By: "ann"}}, nil
}

// Error messages about a request name command line flags and arguments, not API fields.
func TestErrors_NameFlagsInsteadOfAPIFields(t *testing.T) {
	addr := clitest.Serve(t, func(r grpc.ServiceRegistrar) {
		troupev1.RegisterOrchestratorServiceServer(r, rejectingMesh{})
		troupev1.RegisterSessionServiceServer(r, rejectingMesh{})
	})
	for _, c := range []struct {
		line []string
		code int
		says string
	}{
		{[]string{"get", "traces", "--limit", "500"}, process.ExitUsage, "troupe: --limit: must be greater than or equal to 0 and less than or equal to 200\n"},
		{[]string{"search", "--user", "u", "--limit", "500", "word"}, process.ExitUsage, "troupe: --limit: must be "},
		{[]string{"erase", "user", "a b", "--yes"}, process.ExitUsage, "troupe: id of the user: want 1 to 128 letters, digits and _ . : @ + -\n"},
		{[]string{"get", "session", "a b"}, process.ExitUsage, "troupe: id of the session: want 1 to 64 letters, digits and _ -\n"},
		{[]string{"ask", "--target", "x", "hello"}, process.ExitError, `troupe: --target: no workflow or agent is called "x"; see: troupe get agents` + "\n"},
	} {
		var told bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), append(c.line, "--addr", addr), console.Terminal{Out: &told, Err: &told}), c.line)
		require.Contains(t, told.String(), c.says)
	}
}

// Erasing a user without data succeeds, and the receipt says that there was nothing to remove.
func TestErase_UnknownUserPrintsEmptyReceipt(t *testing.T) {
	addr := clitest.Serve(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterSessionServiceServer(r, rejectingMesh{}) })
	var told bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"erase", "user", "u1", "--yes", "--addr", addr}, console.Terminal{Out: &told, Err: &told}))
	require.Regexp(t, `(?m)^removed +nothing: no data was found$`, told.String())
}

// The error suggests `troupe dev` only when nothing listens at the default address.
func TestServer_SuggestsDevOnlyForDefaultAddress(t *testing.T) {
	unreachable := failure.New(failure.SystemNetwork, "test",
		"away").Because(errors.New(`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7400: connect: connection refused"`))
	lost := failure.New(failure.SystemNetwork, "test", "away").Because(errors.New("error reading from server: EOF"))
	require.EqualError(t, remote.Server{Addr: "127.0.0.1:7400"}.ExplainError(unreachable),
		"cannot reach a mesh at 127.0.0.1:7400: connection refused; start one with: troupe dev")
	require.EqualError(t, remote.Server{Addr: "mesh:7400"}.ExplainError(unreachable), "cannot reach a mesh at mesh:7400: connection refused")
	require.EqualError(t, remote.Server{Addr: "127.0.0.1:7400"}.ExplainError(lost), "the mesh at 127.0.0.1:7400 went away")
}
