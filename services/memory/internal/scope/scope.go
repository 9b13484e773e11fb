// Package scope keeps workers to the step that they were given: whatever a request of theirs names
// has to be what the credential of the turn says (guarantees S5, S6, S16).
package scope

import (
	"context"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/caller"
)

// What requests name, by their fields. Every message of the service that has one of them has it at
// its top, but for PutArtifactRequest, of which that is asked of the header.
type (
	ofSession interface{ GetSessionId() string }
	ofTurn    interface{ GetTurnId() string }
	ofEpoch   interface{ GetEpoch() int64 }
	ofUser    interface{ GetUserId() string }
	ofStep    interface{ GetStep() int32 }
	ofResult  interface{ GetResult() *troupev1.StepResult } // whose step it is, and whose agent
)

var service = "/" + troupev1.MemoryService_ServiceDesc.ServiceName + "/"

// New returns the scope of the calls of a memory service. Calls of others than workers are not
// looked at: the table of package authz says what they may call, and orchestrators act for everybody.
//
// A configuration is an agent's, and asks for no credential.
//
// Modes: policy_security without a credential, or with one that proves nothing, and for another step of
// the turn or in the name of another agent; fenced when it has ended or the request is for another turn or
// epoch; not_found for another session, just as for one that does not exist, whether it does or not. What
// they read and write, they do as the holder of the turn in their step.
func New(a *turncred.Authority) rpc.Scope {
	return func(ctx context.Context, method string, req any) (context.Context, error) {
		name, ours := strings.CutPrefix(method, service)
		if !ours || identity.PrincipalOf(ctx).Role != identity.Worker {
			return ctx, nil
		}
		op := "memory." + name
		turn, ok, err := a.Of(ctx)
		switch {
		case err != nil:
			return nil, err
		case ofConfiguration(req):
			return ctx, stored(turn, op, req)
		case !ok:
			return nil, failure.Newf(failure.PolicySecurity, op,
				"a worker may call this within a turn alone; send the credential of the step as the metadata %s", turnctx.CredentialKey)
		}
		if turn.Epoch > 0 { // a replay has none, and reads what is over
			ctx = caller.WithWorker(ctx, caller.Worker{
				Lease: memory.Lease{Ref: session.Ref{Tenant: turn.Tenant, Session: turn.Session}, TurnID: turn.ID, Epoch: turn.Epoch}, Step: turn.Step,
			})
		}
		return ctx, within(turn, op, req)
	}
}

// ofConfiguration reports whether a request is for the configuration of an agent, which belongs to no
// turn: an instance reads it before its first one, and the certificate says whose it is (ADR 0033).
func ofConfiguration(req any) bool {
	switch req.(type) {
	case *troupev1.GetConfigRequest, *troupev1.PutConfigRequest:
		return true
	default:
		return false
	}
}

// stored refuses to change a configuration for a step that is only run again.
func stored(turn turncred.Turn, op string, req any) error {
	if _, put := req.(*troupev1.PutConfigRequest); put && turn.Replay {
		return failure.New(failure.Fenced, op, "a step that is only run again stores nothing")
	}
	return nil
}

// within says why a request is not one of the turn.
func within(turn turncred.Turn, op string, req any) error {
	if put, ok := req.(*troupev1.PutArtifactRequest); ok {
		req = put.GetHeader()
	}
	in, hasSession := req.(ofSession)
	user, hasUser := req.(ofUser)
	epoch, hasEpoch := req.(ofEpoch)
	named, hasTurn := req.(ofTurn)
	step, hasStep := req.(ofStep)
	commit, hasResult := req.(ofResult)
	if hasResult {
		step, hasStep = commit.GetResult(), true
	}
	switch {
	case !hasSession && !hasUser:
		return failure.New(failure.PolicySecurity, op, "no worker may call this: nothing in it says of which turn it is")
	case hasSession && in.GetSessionId() != turn.Session:
		return unknown(op, in.GetSessionId())
	case hasUser && (user.GetUserId() != turn.User || turn.User == ""):
		return failure.New(failure.PolicySecurity, op, "user_id: a turn may ask for the past of its own user alone").With("fields", "user_id")
	case hasTurn && named.GetTurnId() != turn.ID:
		return failure.Newf(failure.Fenced, op, "turn_id: the credential is for turn %s of the session; stop this work", turn.ID).With("turn_id", turn.ID)
	case hasEpoch && turn.Replay:
		return failure.New(failure.Fenced, op, "a step that is only run again stores nothing")
	case hasEpoch && epoch.GetEpoch() != turn.Epoch:
		return failure.Newf(failure.Fenced, op, "epoch: the credential is for epoch %d of the turn, and not for %d; stop this work", turn.Epoch, epoch.GetEpoch()).
			With("epoch", strconv.FormatInt(turn.Epoch, 10))
	case hasTurn && !hasEpoch && !turn.Replay: // what a turn did that is over
		return failure.New(failure.PolicySecurity, op, "this is for a step that is run again, and not for a turn")
	case hasStep && int(step.GetStep()) != turn.Step:
		return failure.Newf(failure.PolicySecurity, op, "step: the credential is for step %d of the turn, and for no other", turn.Step).With("fields", "step")
	case hasResult && commit.GetResult().GetAgent() != turn.Agent:
		return failure.Newf(failure.PolicySecurity, op, "result.agent: the step is that of %s, which answers in no other name", turn.Agent).With("fields", "result.agent")
	}
	return nil
}

// unknown is what the store says of a session that does not exist. It is said of all but one, and the
// store is not asked, so that nobody learns of any whether it does.
func unknown(op, id string) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", id).
		With("session_id", id)
}
