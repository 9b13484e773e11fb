package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// failedTurn returns the events of a remote turn that failed. Another turn can resume it if recoverable is true.
func failedTurn(recoverable bool) []*troupev1.Event {
	result := &troupev1.TurnResult{
		Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Usage: &troupev1.Usage{InputTokens: 4, ModelCalls: 1},
		Failure: &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_RESOURCE_API, Message: "the model is away"},
	}
	if recoverable {
		result.Partial = &troupev1.PartialResult{TraceId: traceID, Recoverable: true}
	}
	return []*troupev1.Event{withAuthor("research", "", textDelta("It may be")), turnResult(result)}
}

// A later attempt of the step, or a resumed turn, requests a failed remote turn once more. Repetitions of the
// attempt use the same request id. If possible, the new turn continues from the results of the failed one.
func TestAgent_RetriesFailedRemoteTurn(t *testing.T) {
	for name, c := range map[string]struct {
		attempt     int
		origin      string
		recoverable bool
		rejected    bool     // the failed turn can no longer be resumed
		succeedsAt  int      // number of the first request that succeeds
		want        []string // for each request, the suffix of its id and its input: text or from
		fails       bool
	}{
		"the first attempt reports it": {attempt: 1, recoverable: true, succeedsAt: 2, want: []string{" text"}, fails: true},
		"a retry resumes":              {attempt: 2, recoverable: true, succeedsAt: 2, want: []string{" text", "-2 from"}},
		"a retry repeats the request":  {attempt: 2, succeedsAt: 2, want: []string{" text", "-2-anew text"}},
		"another turn has resumed it":  {attempt: 2, recoverable: true, rejected: true, succeedsAt: 3, want: []string{" text", "-2 from", "-2-anew text"}},
		"a retry fails too":            {attempt: 2, recoverable: true, succeedsAt: 9, want: []string{" text", "-2 from"}, fails: true},
		"a second retry":               {attempt: 3, recoverable: true, succeedsAt: 3, want: []string{" text", "-2 from", "-3 from"}},
		"a resume of the step":         {attempt: 2, origin: "turn-0", recoverable: true, succeedsAt: 2, want: []string{" text", "-turn-1-2 from"}},
		"a retry after success":        {attempt: 2, succeedsAt: 1, want: []string{" text"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeMesh{}
			m.answer = func(req *troupev1.OrchestrateRequest) ([]*troupev1.Event, error) {
				if c.rejected && req.GetFrom() != nil {
					return nil, failure.New(failure.TurnNotOpen, "test", "its session has continued")
				}
				if len(m.requests) < c.succeedsAt {
					return failedTurn(c.recoverable), nil
				}
				return flowEvents(), nil
			}
			remote, err := serveMesh(t, m).Agent("research", agent.Config{})
			require.NoError(t, err)
			var repeated []string
			for range 2 { // the second repeats the attempt
				m.requests = nil
				inv := agent.Invocation{Step: newStep()}
				inv.Step.Journal, inv.Step.Attempt, inv.Step.OriginTurnID = newJournal(), c.attempt, c.origin
				told, done, err := runAgent(t.Context(), remote, inv)
				require.Equal(t, c.fails, err != nil, "%v", err)
				require.Equal(t, c.fails, failure.Is(err, failure.ResourceAPI), "%v", err)
				var got, ids []string
				first := m.requests[0]
				for _, r := range m.requests {
					require.Equal(t, first.GetSessionId(), r.GetSessionId())
					how := " text"
					if r.GetFrom() != nil {
						require.Equal(t, traceID, r.GetFrom().GetTraceId())
						require.Empty(t, r.GetTarget())
						require.Nil(t, r.GetInput())
						how = " from"
					}
					got, ids = append(got, r.GetRequestId()[len(first.GetRequestId()):]+how), append(ids, r.GetRequestId())
				}
				require.Equal(t, c.want, got)
				if repeated != nil {
					require.Equal(t, repeated, ids)
				}
				repeated = ids
				if failures := int64(c.succeedsAt - 1); !c.fails {
					require.Equal(t, "I found it.", done.Result.Text)
					if c.rejected {
						failures-- // the rejected request used no budget
					}
					require.EqualValues(t, 9+4*failures, done.Result.Usage.InputTokens, "tokens of failed turns count")
				}
				if len(c.want) > 1 {
					require.Contains(t, told[1], client.ReasonRestarted)
					require.Contains(t, told[1], "the model is away")
				}
			}
		})
	}
}
