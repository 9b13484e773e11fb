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

// failed reports whether a remote turn ended with a failure.
func failed(done *troupev1.TurnResult) bool {
	return done.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_FAILED
}

// attempts is how many turns the step may ask for: one for each of its own attempts. A step that is
// resumed had at least one before.
func attempts(inv agent.Invocation) int {
	switch s := inv.Step; {
	case s.TurnID == "": // nothing would make a second one known to who repeats it
		return 1
	case s.Origin != "":
		return max(s.Attempt, 2)
	default:
		return s.Attempt
	}
}

// again asks for a turn that had failed: it is gone on with where that can be done, or else the same
// is asked anew. The request id of the nth is the same whoever asks, so that a successor attaches to
// it; a turn that is resumed more than once has ids of its own each time.
func (r *remote) again(ctx context.Context, c *Client, inv agent.Invocation, first *troupev1.OrchestrateRequest, was *troupev1.TurnResult, n int) (*troupev1.TurnResult, error) {
	why := failure.Plain(grpcfailure.FromProto(was.GetFailure()))
	warning := event.Warning{Reason: ReasonBegunAgain, Message: "agent " + r.target + " had failed (" + why + "); it is asked once more, and what it said so far is void"}
	if r.deaf = !r.yield(event.Event{Payload: warning}, nil); r.deaf {
		return nil, nil
	}
	r.usage = r.usage.Add(wire.UsageFromProto(was.GetUsage()))
	used, id := r.before.Add(r.spent.Used()), first.GetRequestId()
	if inv.Step.Origin != "" {
		id += "-" + conversation.Cut(inv.Step.TurnID, maxTurnID)
	}
	id += "-" + strconv.Itoa(n)

	if p := was.GetPartial(); p.GetRecoverable() {
		r.before, r.spent = budget.Amounts{}, new(spending.Tally) // the turn that goes on counts all of it
		on := proto.CloneOf(first)
		on.Input, on.Target, on.RequestId, on.From = nil, "", id, &troupev1.From{TraceId: p.GetTraceId()}
		done, err := r.ask(ctx, c, inv, on)
		if !failure.Is(err, failure.NotFound, failure.TurnNotOpen) {
			return done, err
		}
	}
	r.before, r.spent = used, new(spending.Tally)
	anew := proto.CloneOf(first)
	anew.RequestId = id + "-anew" // the id above may stand for the other
	return r.ask(ctx, c, inv, anew)
}
