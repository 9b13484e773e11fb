package models

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// An answer that its model could not finish is no plain success: the turn has a warning, and the results of turn and
// step say why. An answer that a content filter stopped fails the turn.
//
// Req: LP-29, C-8
func TestMesh_ResultSaysThatAnAnswerMayBeIncomplete(t *testing.T) {
	docs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(docs, "state.md"), []byte("# State\n\nAn agent may write its own state.\n"), 0o600))
	search := toolCall("call_1", "search_documents", `{"query":"x"}`)
	for name, c := range map[string]struct {
		reply   llmtest.Reply
		warning string
		reason  troupev1.IncompleteReason
		failure troupev1.FailureMode
	}{
		"complete":       {llmtest.Reply{Texts: []string{"All."}}, "", troupev1.IncompleteReason_INCOMPLETE_REASON_UNSPECIFIED, 0},
		"length":         {llmtest.Reply{Texts: []string{"So f"}, Truncated: true}, "ANSWER_CUT", troupev1.IncompleteReason_INCOMPLETE_REASON_LENGTH, 0},
		"unknown reason": {llmtest.Reply{Texts: []string{"So f"}, Reason: "brand_new"}, "ANSWER_END_UNKNOWN", troupev1.IncompleteReason_INCOMPLETE_REASON_OTHER, 0},
		"limit of iterations": {
			llmtest.Reply{Texts: []string{"I look."}, Calls: []llmtest.Call{search}},
			"MAX_ITERATIONS",
			troupev1.IncompleteReason_INCOMPLETE_REASON_MAX_ITERATIONS, 0,
		},
		"content filter": {
			llmtest.Reply{Texts: []string{"I would"}, Filtered: true},
			"ANSWER_FILTERED",
			troupev1.IncompleteReason_INCOMPLETE_REASON_UNSPECIFIED, troupev1.FailureMode_FAILURE_MODE_USER_INVALID_INPUT,
		},
	} {
		t.Run(name, func(t *testing.T) {
			startProvider(t, llmtest.RepliesInOrder(c.reply))
			mesh := startMesh(t, agentFolder(t, "  model: openai/test-large\n  limits: {maxIterations: 1}\n"+
				"  tools:\n    - builtin: search_documents\n      with: {path: "+docs+"}\n"))
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			var warnings []string
			var step *troupev1.StepResult
			var done *troupev1.TurnResult
			for e, err := range mesh.Turn(ctx, &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: "Hi."}, Target: "helper"}) {
				require.NoError(t, err)
				if w := e.GetWarning(); w != nil {
					warnings = append(warnings, w.GetReason())
				}
				if f := e.GetStepFinished(); f != nil {
					step = f.GetResult()
				}
				if r := e.GetTurnResult(); r != nil {
					done = r
				}
			}
			require.Equal(t, c.failure, done.GetFailure().GetMode())
			require.Equal(t, c.reason, done.GetIncomplete())
			if c.warning == "" {
				require.Empty(t, warnings)
			} else {
				require.Contains(t, warnings, c.warning)
			}
			require.Equal(t, c.reason, step.GetIncomplete())
			require.Equal(t, c.reason == troupev1.IncompleteReason_INCOMPLETE_REASON_MAX_ITERATIONS, step.GetMaxIterationsReached())
		})
	}
}
