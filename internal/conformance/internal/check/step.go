package check

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// RequireOneCommit fails the check unless the worker called CommitStep exactly once for the step. It returns the
// request.
func (s *Step) RequireOneCommit(t *T) *troupev1.CommitStepRequest {
	calls := t.Memory.CommitCalls(s.Req.GetSessionId())
	Equal(t, "calls of CommitStep", 1, len(calls))
	return calls[0].Request
}

// RequireUncommitted fails the check unless an abandoned step has ended without a commit and the instance still
// runs steps.
func (s *Step) RequireUncommitted(t *T, in *Instance) {
	in.AwaitState(Ready, time.Second)
	Equal(t, "in_flight after it", 0, in.Status().GetInFlight())
	t.Sleep(200 * time.Millisecond) // the step may still commit late
	Equal(t, "commits of an abandoned step", 0, len(t.Memory.CommitCalls(s.Req.GetSessionId())))
	Equal(t, "answer of the next step", "hello", in.RunStep("say hello"))
}

// RequireNotAdmitted fails the check unless the step was rejected with the mode before it began.
func (s *Step) RequireNotAdmitted(t *T, what string, mode failure.Mode) {
	o, err := s.Wait(t, what, AnswerLimit)
	t.ErrorHasMode(what, err, mode)
	t.True(!o.HasHeader, what, "no response header", "one")
}

// errFirstItem is the error for a WatchState stream whose first item contains a transition.
var errFirstItem = errors.New("the first item of WatchState has a transition; it must have only the status")

// streamEnded splits the error of Recv: ended is true for a normal end of the stream, and any other error is
// returned.
func streamEnded(err error) (ended bool, _ error) {
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// NewRequest returns a step request in a new session. The text is the latest user message.
func (in *Instance) NewRequest(text string) *troupev1.ExecuteStepRequest {
	trace := strings.ReplaceAll(uuid.NewString(), "-", "")
	return &troupev1.ExecuteStepRequest{
		TraceId: trace, SessionId: "s-" + trace, TurnId: "t-" + trace, Turn: 3, Step: 1, Attempt: 1, Epoch: 41,
		Agent: in.MakeResponse.GetAgent(), BaseSequence: 7, Last: true, Goal: text, Task: text,
		History: []*troupev1.Message{
			newMessage(troupev1.Role_ROLE_USER, 5, 2, "say not this"),
			newMessage(troupev1.Role_ROLE_ASSISTANT, 6, 2, "not this"),
			newMessage(troupev1.Role_ROLE_USER, 7, 3, text),
		},
	}
}

func newMessage(role troupev1.Role, sequence int64, turn int32, text string) *troupev1.Message {
	m := &troupev1.Message{Role: role, Sequence: sequence, Turn: turn}
	m.Parts = []*troupev1.Part{{Content: &troupev1.Part_Text{Text: text}}}
	if role == troupev1.Role_ROLE_ASSISTANT {
		m.Author = "someone"
	}
	return m
}

// Step is an ExecuteStep call that runs in the background.
type Step struct {
	*Call[StepOutcome]
	Req      *troupev1.ExecuteStepRequest
	Cancel   context.CancelFunc
	admitted chan struct{} // closed when the response header arrives
	Answered chan struct{} // closed when the first result arrives
}

// StepOutcome holds everything that arrived on the stream of a step.
type StepOutcome struct {
	HasHeader        bool
	Events           []*troupev1.Event
	results          []*troupev1.StepResult
	itemsAfterResult int // items after the first result
	AdmittedAt       time.Time
	AnsweredAt       time.Time
	ArrivalTimes     []time.Time // when each item arrived
}

// Text returns the text of the first result.
func (o StepOutcome) Text() string { return o.Result().GetText() }

// Result returns the first result of the step, or nil if there was none.
func (o StepOutcome) Result() *troupev1.StepResult {
	if len(o.results) == 0 {
		return nil
	}
	return o.results[0]
}

// Deltas returns the text deltas of the step in order of arrival.
func (o StepOutcome) Deltas() []string {
	var pieces []string
	for _, e := range o.Events {
		if d := e.GetTextDelta(); d != nil {
			pieces = append(pieces, d.GetText())
		}
	}
	return pieces
}

// StartStep starts a step whose user message is the text.
func (in *Instance) StartStep(text string) *Step {
	return in.SendStep(in.t.Ctx, in.NewRequest(text), Session{})
}

// SendStep starts a step with the given request. The session says how the memory service behaves toward the step's
// commits.
func (in *Instance) SendStep(ctx context.Context, req *troupev1.ExecuteStepRequest, memory Session) *Step {
	in.t.Memory.openSession(req, memory)
	ctx, cancel := context.WithCancel(ctx)
	s := &Step{Req: req, Cancel: cancel, admitted: make(chan struct{}), Answered: make(chan struct{})}
	s.Call = Go(in.t, func() (StepOutcome, error) {
		defer cancel()
		stream, err := in.agentClient.ExecuteStep(ctx, req)
		if err != nil {
			return StepOutcome{}, err
		}
		return s.readStream(stream)
	})
	return s
}

// readStream reads the stream to its end and records its items.
func (s *Step) readStream(stream troupev1.AgentService_ExecuteStepClient) (o StepOutcome, _ error) {
	if header, err := stream.Header(); err == nil && header != nil { // a rejected step has no header
		o.HasHeader, o.AdmittedAt = true, time.Now()
		close(s.admitted)
	}
	for {
		item, err := stream.Recv()
		if done, err := streamEnded(err); done || err != nil {
			return o, err
		}
		o.ArrivalTimes = append(o.ArrivalTimes, time.Now())
		if len(o.results) > 0 {
			o.itemsAfterResult++
		}
		if e := item.GetEvent(); e != nil {
			o.Events = append(o.Events, e)
		}
		if r := item.GetResult(); r != nil {
			o.results = append(o.results, r)
			if len(o.results) == 1 {
				o.AnsweredAt = time.Now()
				close(s.Answered)
			}
		}
	}
}

// AwaitAdmission waits until the step is admitted, and returns the step.
func (s *Step) AwaitAdmission(t *T) *Step {
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-s.admitted:
		return s
	case <-s.done:
		if s.Value.HasHeader {
			return s
		}
		t.NoError("ExecuteStep", s.Err)
		t.Failf("ExecuteStep: expected a response header, actual none")
	case <-timer.C:
		t.Failf("ExecuteStep: expected a response header within 2s, actual none")
	}
	return s
}

// AwaitResult waits until the stream of the step has ended with OK. It fails the check unless the last item is the
// only result.
func (s *Step) AwaitResult(t *T, limit time.Duration) StepOutcome {
	o, err := s.Wait(t, "ExecuteStep", limit)
	t.NoError("ExecuteStep", err)
	t.True(o.HasHeader, "ExecuteStep", "a response header", "none")
	Equal(t, "results of the step", 1, len(o.results))
	Equal(t, "items after the result", 0, o.itemsAfterResult)
	return o
}

// RequireSuccess waits as AwaitResult does, and fails the check if the step failed.
func (s *Step) RequireSuccess(t *T, limit time.Duration) StepOutcome {
	o := s.AwaitResult(t, limit)
	if f := o.Result().GetFailure(); f != nil {
		t.Failf("result of the step: expected no failure, actual %s: %s", f.GetMode(), f.GetMessage())
	}
	return o
}

// RequireFailure waits as AwaitResult does, and fails the check unless the step failed with the mode.
func (s *Step) RequireFailure(t *T, limit time.Duration, mode troupev1.FailureMode) StepOutcome {
	o := s.AwaitResult(t, limit)
	f := o.Result().GetFailure()
	t.True(f != nil, "result of the step", "a failure", "none")
	Equal(t, "failure of the step", mode, f.GetMode())
	return o
}

// RunStep runs a step to its end and returns the text of its result.
func (in *Instance) RunStep(text string) string {
	return in.StartStep(text).RequireSuccess(in.t, 5*time.Second).Text()
}
