package dispatch

import (
	"errors"
	"strconv"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// unchanged compares what an item of a step says of its place with the place that the step was
// given: that is the orchestrator's (contract SO-12, OC-10). What it leaves out it does not change.
// Who changes it is the worker whose certificate the connection proves.
func unchanged(req *troupev1.ExecuteStepRequest, item *troupev1.ExecuteStepResponse) error {
	said, given := placed(item), map[string]string{
		"trace_id": req.GetTraceId(), "root_trace_id": req.GetRootTraceId(), "session_id": req.GetSessionId(), "agent": req.GetAgent(),
		"turn": number(req.GetTurn()), "step": number(req.GetStep()), "attempt": number(req.GetAttempt()),
	}
	for _, key := range []string{"trace_id", "root_trace_id", "session_id", "turn", "step", "attempt", "agent"} {
		if said[key] != "" && said[key] != given[key] {
			actor := identity.Principal{Role: identity.Worker, Name: req.GetAgent()}.String()
			return ownership.Violation("agent.ExecuteStep", key, ownership.Orchestrator, actor)
		}
	}
	return nil
}

// placed is what an item says of it.
func placed(item *troupev1.ExecuteStepResponse) map[string]string {
	if r := item.GetResult(); r != nil {
		return map[string]string{"step": number(r.GetStep()), "agent": r.GetAgent()}
	}
	e := item.GetEvent()
	return map[string]string{
		"trace_id": e.GetTraceId(), "root_trace_id": e.GetRootTraceId(), "session_id": e.GetSessionId(), "agent": e.GetAgent(),
		"turn": number(e.GetTurn()), "step": number(e.GetStep()), "attempt": number(e.GetAttempt()),
	}
}

// number is a number that is set; empty: it is not.
func number(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// trespassed is a step that is taken from an instance because that changed its place: nothing more of
// it is believed. Another instance would hardly do better.
func trespassed(in registry.Instance, err error) error {
	e, _ := errors.AsType[*failure.Error](err)
	return &LostError{Instance: in, Failure: e.With("instance_id", in.ID), ContractViolation: true}
}
