package stepserver

import (
	"context"
	"strconv"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// runningSteps holds the running steps, so that no step runs twice under one epoch. The journal tells attempts
// apart, but not two calls for the same attempt (guarantees, section 2.4). It is safe for concurrent use.
type runningSteps struct {
	mu    sync.Mutex
	steps map[stepKey]*attempt
}

type stepKey struct {
	session, turn string
	step          int32
}

type attempt struct {
	epoch  int64
	cancel context.CancelCauseFunc
}

func newRunningSteps() *runningSteps { return &runningSteps{steps: map[stepKey]*attempt{}} }

// add adds a step under its epoch until remove is called. It cancels a running attempt of the step with a lower
// epoch. If an attempt with the same or a higher epoch is running, it returns an error of mode fenced.
func (r *runningSteps) add(req *troupev1.ExecuteStepRequest, end context.CancelCauseFunc) (remove func(), err error) {
	key := stepKey{req.GetSessionId(), req.GetTurnId(), req.GetStep()}
	mine := &attempt{req.GetEpoch(), end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.steps[key]; other != nil {
		if other.epoch >= mine.epoch {
			return nil, failure.Newf(failure.Fenced, "agent.ExecuteStep",
				"step %d of turn %s already runs here under epoch %d", req.GetStep(), req.GetTurnId(), other.epoch).
				With("current_epoch", strconv.FormatInt(other.epoch, 10))
		}
		other.cancel(failure.Newf(failure.Fenced, "agent.ExecuteStep", "the step was given to this worker again, under epoch %d", mine.epoch))
	}
	r.steps[key] = mine
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.steps[key] == mine {
			delete(r.steps, key)
		}
	}, nil
}
