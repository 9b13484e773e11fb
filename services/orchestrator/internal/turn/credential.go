package turn

import (
	"context"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// credit gives an attempt the credential by which its worker acts in the turn, and in nothing else
// (guarantees S6). It is for this step alone, and until that is committed; who has the step behind an
// attempt that was lost has another epoch.
func (t *turn) credit(work context.Context, req *troupev1.ExecuteStepRequest) (err error) {
	deadline, _ := work.Deadline()
	req.Credential, err = t.Credentials.Issue(turncred.Turn{
		Agent: req.GetAgent(), Tenant: t.req.Tenant, Session: t.req.Session, ID: t.turn.ID, User: t.req.User, Trace: t.turn.Trace, Epoch: t.turn.Epoch,
		Step: int(req.GetStep()),
		Root: req.GetRootTraceId(), Level: int(req.GetBudget().GetLevel()), Budget: wire.LimitsFromProto(req.GetBudget()),
	}, deadline)
	if req.GetCredential() != "" {
		t.credited.Do(func() {
			t.Telemetry.Audit.Record(audit.Entry{
				Kind: audit.Credential, Actor: string(identity.Orchestrator), Action: "issue", Object: t.req.Session, Result: "ok",
				Facts: map[string]string{"tenant": t.req.Tenant, "turn": t.turn.ID, "trace": t.turn.Trace, "agent": req.GetAgent()},
			})
		})
	}
	return err
}
