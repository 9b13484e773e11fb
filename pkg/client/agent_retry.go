package client

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// isFailed reports whether a remote turn ended with a failure.
func isFailed(done *troupev1.TurnResult) bool {
	return done.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_FAILED
}

// maxTurns returns how many remote turns the step may request: one for each attempt. A resumed step may request
// one more, because it ran at least once before.
func maxTurns(inv agent.Invocation) int {
	switch s := inv.Step; {
	case s.TurnID == "": // without a turn id, another attempt could not derive the id of the second remote turn
		return 1
	case s.OriginTurnID != "":
		return max(s.Attempt, 2)
	default:
		return s.Attempt
	}
}

// retry yields a warning and requests a failed remote turn once more. It resumes the turn if possible, and
// otherwise repeats the request. All attempts use the same request id for the nth remote turn, so that a successor
// attaches to it. If the parent turn is resumed again, other ids are used.
func (r *remoteTurn) retry(ctx context.Context, c *Client, inv agent.Invocation, first *troupev1.OrchestrateRequest,
	was *troupev1.TurnResult, n int,
) (*troupev1.TurnResult, error) {
	reason := failure.PlainMessage(grpcfailure.FromProto(was.GetFailure()))
	warning := event.Warning{
		Reason:  ReasonRestarted,
		Message: "agent " + r.target + " had failed (" + reason + "); it is asked once more, and what it said so far is void",
	}
	if r.readerStopped = !r.yield(event.Event{Payload: warning}, nil); r.readerStopped {
		return nil, nil
	}
	r.earlierUsage = r.earlierUsage.Add(wire.UsageFromProto(was.GetUsage()))
	used, id := r.earlierAmounts.Add(r.spending.Used()), first.GetRequestId()
	if inv.Step.OriginTurnID != "" {
		id += "-" + conversation.Truncate(inv.Step.TurnID, maxTurnIDBytes)
	}
	id += "-" + strconv.Itoa(n)

	if p := was.GetPartial(); p.GetRecoverable() {
		r.earlierAmounts, r.spending = budget.Amounts{}, new(spending.Tally) // the resumed turn reports the whole usage again
		on := proto.CloneOf(first)
		on.Input, on.Target, on.RequestId, on.From = nil, "", id, &troupev1.From{TraceId: p.GetTraceId()}
		done, err := r.runRequest(ctx, c, inv, on)
		if !failure.Is(err, failure.NotFound, failure.TurnNotOpen) {
			return done, err
		}
	}
	r.earlierAmounts, r.spending = used, new(spending.Tally)
	anew := proto.CloneOf(first)
	anew.RequestId = id + "-anew" // the id without the suffix may belong to the resumed turn
	return r.runRequest(ctx, c, inv, anew)
}
