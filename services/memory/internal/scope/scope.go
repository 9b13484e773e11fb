// Package scope restricts workers to their own steps. The session, turn, step and agent in a worker's request must
// match the credential of the turn (guarantees S5, S6, S16).
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

// These interfaces give access to the request fields that name a session, turn, step or agent. Most requests have
// these fields at the top level. CommitStepRequest has step and agent in its result, and PutArtifactRequest has all of
// them in its header.
type (
	sessionRequest interface{ GetSessionId() string }
	turnRequest    interface{ GetTurnId() string }
	epochRequest   interface{ GetEpoch() int64 }
	userRequest    interface{ GetUserId() string }
	stepRequest    interface{ GetStep() int32 }
	resultRequest  interface{ GetResult() *troupev1.StepResult } // the result has the step and the agent
	agentRequest   interface{ GetAgent() string }
)

var methodPrefix = "/" + troupev1.MemoryService_ServiceDesc.ServiceName + "/"

// New returns the rpc.Scope of the memory service. It checks only the calls of workers. The table of package authz
// says what other callers may call, and orchestrators act for all users.
//
// A configuration belongs to an agent and needs no credential.
//
// Modes: policy_security without a valid credential, for another step of the turn, or for another agent; fenced
// when the credential has ended or the request is for another turn or epoch; not_found for another session,
// whether or not it exists. A worker reads and writes as the holder of the turn in its step.
func New(a *turncred.Authority) rpc.ScopeChecker {
	return func(ctx context.Context, method string, req any) (context.Context, error) {
		name, ours := strings.CutPrefix(method, methodPrefix)
		if !ours || identity.PrincipalFromContext(ctx).Role != identity.Worker {
			return ctx, nil
		}
		op := "memory." + name
		turn, ok, err := a.TurnFromContext(ctx)
		switch {
		case err != nil:
			return nil, err
		case isConfigurationRequest(req):
			return ctx, checkConfiguration(turn, op, req)
		case !ok:
			return nil, failure.Newf(failure.PolicySecurity, op,
				"a worker may call this only within a turn; send the credential of the step as the metadata %s", turnctx.CredentialKey)
		}
		if turn.Epoch > 0 { // a replay has no epoch, and reads finished steps
			ctx = caller.WithWorker(ctx, caller.Worker{
				Lease: memory.Lease{Ref: session.Ref{Tenant: turn.Tenant, Session: turn.Session}, TurnID: turn.ID, Epoch: turn.Epoch}, Step: turn.Step,
			})
		}
		return ctx, checkRequest(turn, op, req)
	}
}

// isConfigurationRequest reports whether a request is about the configuration of an agent. A configuration belongs
// to no turn: an instance reads it before its first turn, and the certificate names the agent (ADR 0033).
func isConfigurationRequest(req any) bool {
	switch req.(type) {
	case *troupev1.GetConfigRequest, *troupev1.PutConfigRequest:
		return true
	default:
		return false
	}
}

// checkConfiguration rejects a request of a replayed step that would change a configuration.
func checkConfiguration(turn turncred.Turn, op string, req any) error {
	if _, put := req.(*troupev1.PutConfigRequest); put && turn.Replay {
		return failure.New(failure.Fenced, op, "a replayed step stores nothing")
	}
	return nil
}

// checkRequest returns an error if a request does not belong to the step that the credential names.
func checkRequest(turn turncred.Turn, op string, req any) error {
	if put, ok := req.(*troupev1.PutArtifactRequest); ok {
		req = put.GetHeader()
	}
	in, hasSession := req.(sessionRequest)
	user, hasUser := req.(userRequest)
	epoch, hasEpoch := req.(epochRequest)
	named, hasTurn := req.(turnRequest)
	step, hasStep := req.(stepRequest)
	agent, hasAgent := req.(agentRequest)
	agentField := "agent"
	if commit, ok := req.(resultRequest); ok {
		step, hasStep = commit.GetResult(), true
		agent, hasAgent, agentField = commit.GetResult(), true, "result.agent"
	}
	switch {
	case !hasSession && !hasUser:
		return failure.New(failure.PolicySecurity, op, "no worker may call this: the request names no session and no user")
	case hasSession && in.GetSessionId() != turn.Session:
		return unknownSessionError(op, in.GetSessionId())
	case hasUser && (user.GetUserId() != turn.User || turn.User == ""):
		return failure.New(failure.PolicySecurity, op, "user_id: a turn may search only the sessions of its own user").With("fields", "user_id")
	case hasTurn && named.GetTurnId() != turn.ID:
		return failure.Newf(failure.Fenced, op, "turn_id: the credential is for turn %s of the session; stop this work", turn.ID).With("turn_id", turn.ID)
	case hasEpoch && turn.Replay:
		return failure.New(failure.Fenced, op, "a replayed step stores nothing")
	case hasEpoch && epoch.GetEpoch() != turn.Epoch:
		return failure.Newf(failure.Fenced, op, "epoch: the credential is for epoch %d of the turn, and not for %d; stop this work", turn.Epoch,
			epoch.GetEpoch()).
			With("epoch", strconv.FormatInt(turn.Epoch, 10))
	case hasTurn && !hasEpoch && !turn.Replay: // a call about a finished turn
		return failure.New(failure.PolicySecurity, op, "only a replayed step may call this")
	case hasStep && int(step.GetStep()) != turn.Step:
		return failure.Newf(failure.PolicySecurity, op, "step: the credential is only for step %d of the turn", turn.Step).With("fields", "step")
	case hasAgent && agent.GetAgent() != turn.Agent:
		return failure.Newf(failure.PolicySecurity, op, "%s: the step belongs to agent %s and cannot act for another", agentField, turn.Agent).
			With("fields", agentField)
	}
	return nil
}

// unknownSessionError returns the same error as the store for a session that does not exist. The store is not
// asked, so that a worker cannot learn which other sessions exist.
func unknownSessionError(op, id string) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", id).
		With("session_id", id)
}
