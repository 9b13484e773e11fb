package conformance

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// checkVersion rejects a verb for another version of the status. The caller holds the lock.
func (r *referenceInstance) checkVersion(version *uint64) error {
	if version == nil || *version == r.status.StateVersion || r.hasFault(ignoresStateVersion) {
		return nil
	}
	return failure.New(failure.AgentState, "lifecycle", "the instance has another state_version")
}

// Pause implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) Pause(ctx context.Context, req *troupev1.PauseRequest) (*troupev1.PauseResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkVersion(req.IfStateVersion); err != nil {
		return nil, err
	}
	state := r.status.State
	switch {
	case r.isShutDown():
		return nil, newWrongStateError("Pause", r.status, "[ready busy]")
	case state == check.Ready, state == check.Initializing && r.hasFault(pausesDuringStartup):
		r.transition(ctx, check.Paused, req.GetReason())
	case state == check.Busy && !r.hasFault(pauseReturnsEarly):
		if !r.status.Pausing {
			r.status.Pausing, r.status.Reason = true, req.GetReason()
			r.notifyWatchers()
		}
		r.waitingPauses++
		settled := r.await(ctx, farFuture, func() bool { return !r.status.Pausing })
		r.waitingPauses--
		if !settled {
			if r.waitingPauses == 0 && !r.hasFault(keepsAdmissionClosed) || r.hasFault(pauseEndsOtherPause) {
				r.status.Pausing = false
				r.notifyWatchers()
			}
			return nil, failure.New(failure.AgentTimeout, "Pause", "steps still run")
		}
		if r.status.State != check.Paused {
			return nil, newWrongStateError("Pause", r.status, "[ready busy]")
		}
	case state == check.Busy:
		r.status.Pausing = true
	}
	return &troupev1.PauseResponse{Status: proto.CloneOf(r.status)}, nil
}

// Resume implements troupev1.LifecycleServiceServer.
func (r *referenceInstance) Resume(ctx context.Context, req *troupev1.ResumeRequest) (*troupev1.ResumeResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkVersion(req.IfStateVersion); err != nil {
		return nil, err
	}
	switch {
	case r.isShutDown():
		return nil, newWrongStateError("Resume", r.status, "paused")
	case r.status.State == check.Paused:
		r.transition(ctx, check.Ready, req.GetReason())
	case r.status.Pausing && !r.hasFault(resumeIgnoresPendingPause):
		r.status.Pausing, r.status.Reason = false, req.GetReason()
		r.notifyWatchers()
	}
	return &troupev1.ResumeResponse{Status: proto.CloneOf(r.status)}, nil
}
