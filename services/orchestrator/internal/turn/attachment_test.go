package turn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// attachmentRequest returns a request with an attachment.
func attachmentRequest(sessionID, requestID string) request.Request {
	req := textRequest(sessionID, requestID)
	req.Target = "synthesis"
	req.Files = []conversation.Attachment{{Name: "notes.txt", MediaType: "text/plain", Size: 4, Data: []byte("milk")}}
	return req
}

// requireStoredNotes checks what is stored for the attachment after its turn began: one version, which the first
// event and the step refer to. Only the artifact has the bytes.
func requireStoredNotes(t *testing.T, rig *rig, sessionID string, events []*troupev1.Event) {
	t.Helper()
	want := &troupev1.Blob{Name: "notes.txt", MediaType: "text/plain", Size: 4, Artifact: &troupev1.ArtifactRef{Name: "notes.txt", Version: 1}}
	told := events[0].GetTurnStarted().GetAttachments()
	require.Empty(t, cmp.Diff([]*troupev1.Blob{want}, told, protocmp.Transform()))
	history := rig.receivedSteps()[len(rig.receivedSteps())-1].GetHistory()
	require.Empty(t, cmp.Diff(want, history[len(history)-1].GetParts()[1].GetBlob(), protocmp.Transform()))
	all, err := rig.memory.ListArtifacts(t.Context(), session.Ref{Session: sessionID})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, 1, all[0].Version)
}

func TestTurn_BeginsWithAttachments(t *testing.T) {
	rig := newRig(t)
	r := rig.newRunner(t, "one")
	events := runToEnd(t, r, attachmentRequest("s1", "r1"))
	require.Equal(t, "I am synthesis.", turnResult(events).GetText(), "%v", turnResult(events))
	requireStoredNotes(t, rig, "s1", events)

	// A repeated request with the same file is the same turn. With other bytes it is another request.
	require.Len(t, runToEnd(t, r, attachmentRequest("s1", "r1")), len(durableEvents(events)))
	requireStoredNotes(t, rig, "s1", events)
	other := attachmentRequest("s1", "r1")
	other.Files[0].Data = []byte("eggs")
	for _, err := range r.Orchestrate(t.Context(), other) {
		require.True(t, failure.Is(err, failure.KeyReused), "%v", err)
	}
	require.Len(t, rig.receivedSteps(), 1)
}

// Attachments and the turn are stored in one write. An orchestrator that dies before the first step therefore
// loses neither. The same request continues the turn, and so does a replica that takes over without the bytes.
func TestTurn_AttachmentsSurviveALostOrchestratorBeforeTheFirstStep(t *testing.T) {
	rig := newRig(t)
	heir := rig.newRunner(t, "two")
	req := attachmentRequest("s1", "r1")
	begun, err := rig.memory.BeginTurn(t.Context(), rig.newBegin(req)) // and its orchestrator is gone
	require.NoError(t, err)
	require.Equal(t, 1, begun.Turn.Attempt)
	rig.expireLeases()

	events := runToEnd(t, heir, req)
	require.Equal(t, "I am synthesis.", turnResult(events).GetText(), "%v", turnResult(events))
	require.Equal(t, begun.Turn.Trace, events[0].GetTraceId())
	requireStoredNotes(t, rig, "s1", events)
}
