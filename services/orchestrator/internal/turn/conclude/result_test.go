package conclude

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// The result lists the pending calls even when only the record of the turn is left, and not its trace.
func TestTurnResult_ListsPendingCalls(t *testing.T) {
	closed := session.Turn{
		Outcome: session.OutcomeInputRequired,
		Steps:   []execution.Result{{InputRequired: true, Pending: wire.PendingFromProto([]*troupev1.PendingCall{{CallId: "1-2-2", Tool: "send_mail"}})}},
	}
	require.Len(t, turnResult(closed).GetPending(), 1)
	closed.Outcome = session.OutcomeFailed
	require.Empty(t, turnResult(closed).GetPending())
}
