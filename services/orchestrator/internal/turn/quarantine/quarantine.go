// Package quarantine ends the running steps of an agent when the agent is quarantined (guarantee S18).
package quarantine

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Error is the cause with which the steps of a quarantined agent, and their turn, end.
type Error struct {
	Agent string
	cause error
}

func (e *Error) Error() string { return e.cause.Error() }

// Unwrap returns the underlying failure, which is policy_security.
func (e *Error) Unwrap() error { return e.cause }

// WatchAgent returns a context for a step of an agent. The context ends when the agent is quarantined. The caller
// must call done when the step has ended.
func WatchAgent(work context.Context, cache *instances.Cache, agent string) (_ context.Context, done func()) {
	work, cancel := context.WithCancelCause(work)
	begun := cache.Desired().QuarantineStarted(agent)
	end := func() {
		if d, out := cache.Desired().Quarantine(agent); out {
			cancel(&Error{agent, d.QuarantineError("turn")})
		}
	}
	var waiting sync.WaitGroup
	select {
	case <-begun: // checked first, so that no step begins
		end()
	default:
		waiting.Go(func() {
			select {
			case <-begun:
				end()
			case <-work.Done():
			}
		})
	}
	return work, func() { cancel(nil); waiting.Wait() }
}

// Cause returns the quarantine error that ended the work (nil when the work ended for another reason).
func Cause(work context.Context) error {
	if e, ok := errors.AsType[*Error](context.Cause(work)); ok {
		return e
	}
	return nil
}

// Turn identifies the ended turn in the audit log.
type Turn struct {
	Owner, Trace, Session, Tenant string
	Epoch                         int64
}

// RecordAudit records in the audit log that a turn ends because its agent is quarantined.
func (e *Error) RecordAudit(log *audit.Log, t Turn) {
	log.Record(audit.Entry{
		Kind: audit.Denied, Actor: "orchestrator " + t.Owner, Action: "end turn of quarantined agent", Object: e.Agent,
		Result: string(failure.PolicySecurity),
		Facts: map[string]string{
			"trace_id": t.Trace, "session_id": t.Session, "tenant": t.Tenant, "epoch": strconv.FormatInt(t.Epoch, 10),
		},
	})
}
