package contract

import (
	"strconv"

	"github.com/troupe-dev/troupe/internal/identity"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// checkPlacement fails with state_violation if an item names another trace, session, turn or step than the
// request. The orchestrator owns these values (contract SO-12, OC-10). An item may omit them. The error names the
// worker by its verified certificate.
func checkPlacement(req *troupev1.ExecuteStepRequest, item *troupev1.ExecuteStepResponse) error {
	got, want := placementFields(item), map[string]string{
		"trace_id": req.GetTraceId(), "root_trace_id": req.GetRootTraceId(), "session_id": req.GetSessionId(), "agent": req.GetAgent(),
		"turn": formatNumber(req.GetTurn()), "step": formatNumber(req.GetStep()), "attempt": formatNumber(req.GetAttempt()),
	}
	for _, key := range []string{"trace_id", "root_trace_id", "session_id", "turn", "step", "attempt", "agent"} {
		if got[key] != "" && got[key] != want[key] {
			actor := identity.Principal{Role: identity.Worker, Name: req.GetAgent()}.String()
			return ownership.NewViolationError("agent.ExecuteStep", key, ownership.Orchestrator, actor)
		}
	}
	return nil
}

// placementFields returns the trace, session, turn and step that an item names.
func placementFields(item *troupev1.ExecuteStepResponse) map[string]string {
	if r := item.GetResult(); r != nil {
		return map[string]string{"step": formatNumber(r.GetStep()), "agent": r.GetAgent()}
	}
	e := item.GetEvent()
	return map[string]string{
		"trace_id": e.GetTraceId(), "root_trace_id": e.GetRootTraceId(), "session_id": e.GetSessionId(), "agent": e.GetAgent(),
		"turn": formatNumber(e.GetTurn()), "step": formatNumber(e.GetStep()), "attempt": formatNumber(e.GetAttempt()),
	}
}

// formatNumber formats a number (empty for 0, because 0 means unset).
func formatNumber(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}
