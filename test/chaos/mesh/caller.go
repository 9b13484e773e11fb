package mesh

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/turnctx"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Caller connects to the memory service with both identities that may call it: an orchestrator and a worker. Calls
// that only workers may make carry the credential of their turn.
type Caller struct {
	orchestrator, worker *grpc.ClientConn
	signer               *turncred.Authority // signs as the orchestrator
}

var _ grpc.ClientConnInterface = (*Caller)(nil)

// turnRequest is a request that the holder of a turn makes. All such requests implement it.
type turnRequest interface {
	GetSessionId() string
	GetTurnId() string
	GetEpoch() int64
}

// stepFromRequest returns the step of a request (0 if it names none).
func stepFromRequest(args any) int {
	switch r := args.(type) {
	case interface{ GetStep() int32 }:
		return int(r.GetStep())
	case interface{ GetResult() *troupev1.StepResult }:
		return int(r.GetResult().GetStep())
	default:
		return 0
	}
}

// withCredential returns a context with the credential of the turn. A former holder keeps its credential after a
// takeover.
func (c *Caller) withCredential(ctx context.Context, args any) (context.Context, error) {
	h, ok := args.(turnRequest)
	if !ok {
		return ctx, nil
	}
	credential, err := c.signer.Issue(turncred.Turn{
		Agent: Agent, Tenant: identity.DefaultTenant, Session: h.GetSessionId(), ID: h.GetTurnId(), Epoch: h.GetEpoch(), Step: stepFromRequest(args),
	}, time.Time{})
	return metadata.AppendToOutgoingContext(ctx, turnctx.CredentialKey, credential), err
}

func (c *Caller) connFor(method string) *grpc.ClientConn {
	if roles, _ := authz.RolesFor(method); slices.Contains(roles, identity.Orchestrator) {
		return c.orchestrator
	}
	return c.worker
}

// Invoke implements grpc.ClientConnInterface.
func (c *Caller) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn := c.connFor(method)
	if conn == c.worker {
		var err error
		if ctx, err = c.withCredential(ctx, args); err != nil {
			return err
		}
	}
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *Caller) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.connFor(method).NewStream(ctx, desc, method, opts...)
}

// Close closes both connections.
func (c *Caller) Close() error { return errors.Join(c.orchestrator.Close(), c.worker.Close()) }
