package conformance

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// errFirstItem is a WatchState that does not begin with the status.
var errFirstItem = errors.New("the first item of WatchState has a transition; it is to have the status alone")

// ending tells the end of a stream with OK from an error.
func ending(err error) (ended bool, _ error) {
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// request is a step that says the text to the agent, in a session of its own.
func (in *instance) request(text string) *troupev1.ExecuteStepRequest {
	trace := strings.ReplaceAll(uuid.NewString(), "-", "")
	return &troupev1.ExecuteStepRequest{
		TraceId: trace, SessionId: "s-" + trace, TurnId: "t-" + trace, Turn: 3, Step: 1, Attempt: 1, Epoch: 41,
		Agent: in.made.GetAgent(), BaseSequence: 7, Last: true, Goal: text, Task: text,
		History: []*troupev1.Message{
			message(troupev1.Role_ROLE_USER, 5, 2, "say not this"),
			message(troupev1.Role_ROLE_ASSISTANT, 6, 2, "not this"),
			message(troupev1.Role_ROLE_USER, 7, 3, text),
		},
	}
}

func message(role troupev1.Role, sequence int64, turn int32, text string) *troupev1.Message {
	m := &troupev1.Message{Role: role, Sequence: sequence, Turn: turn}
	m.Parts = []*troupev1.Part{{Content: &troupev1.Part_Text{Text: text}}}
	if role == troupev1.Role_ROLE_ASSISTANT {
		m.Author = "someone"
	}
	return m
}

// step is an ExecuteStep in the background.
type step struct {
	*pending[outcome]
	req      *troupev1.ExecuteStepRequest
	cancel   context.CancelFunc
	admitted chan struct{} // closed when the response header is there
	answered chan struct{} // closed when the first result is there
}

// outcome is what came over the stream of a step.
type outcome struct {
	header     bool
	events     []*troupev1.Event
	results    []*troupev1.StepResult
	afterwards int // items after the first result
	admittedAt time.Time
	answeredAt time.Time
	arrived    []time.Time // when each item came
}

// text is what the first result says.
func (o outcome) text() string { return o.result().GetText() }

func (o outcome) result() *troupev1.StepResult {
	if len(o.results) == 0 {
		return nil
	}
	return o.results[0]
}

// deltas is the text that was streamed, piece by piece.
func (o outcome) deltas() []string {
	var pieces []string
	for _, e := range o.events {
		if d := e.GetTextDelta(); d != nil {
			pieces = append(pieces, d.GetText())
		}
	}
	return pieces
}

// begin sends a step that says the text.
func (in *instance) begin(text string) *step {
	return in.send(in.t.ctx, in.request(text), ledger{})
}

// send sends a step; the ledger says how the memory service behaves to it.
func (in *instance) send(ctx context.Context, req *troupev1.ExecuteStepRequest, memory ledger) *step {
	in.t.memory.open(req, memory)
	ctx, cancel := context.WithCancel(ctx)
	s := &step{req: req, cancel: cancel, admitted: make(chan struct{}), answered: make(chan struct{})}
	s.pending = async(in.t, func() (outcome, error) {
		defer cancel()
		stream, err := in.stepper.ExecuteStep(ctx, req)
		if err != nil {
			return outcome{}, err
		}
		return s.read(stream)
	})
	return s
}

// read reads the stream to its end.
func (s *step) read(stream troupev1.AgentService_ExecuteStepClient) (o outcome, _ error) {
	if header, err := stream.Header(); err == nil && header != nil { // none when the step was refused
		o.header, o.admittedAt = true, time.Now()
		close(s.admitted)
	}
	for {
		item, err := stream.Recv()
		if done, err := ending(err); done || err != nil {
			return o, err
		}
		o.arrived = append(o.arrived, time.Now())
		if len(o.results) > 0 {
			o.afterwards++
		}
		if e := item.GetEvent(); e != nil {
			o.events = append(o.events, e)
		}
		if r := item.GetResult(); r != nil {
			o.results = append(o.results, r)
			if len(o.results) == 1 {
				o.answeredAt = time.Now()
				close(s.answered)
			}
		}
	}
}

// isAdmitted waits until the step is admitted, and returns it.
func (s *step) isAdmitted(t *trial) *step {
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-s.admitted:
		return s
	case <-s.done:
		if s.value.header {
			return s
		}
		t.ok("ExecuteStep", s.err)
		t.failf("ExecuteStep: expected a response header, actual none")
	case <-timer.C:
		t.failf("ExecuteStep: expected a response header within 2s, actual none")
	}
	return s
}

// end waits until the step has ended in order: OK, with exactly one result, the last item.
func (s *step) end(t *trial, limit time.Duration) outcome {
	o, err := s.wait(t, "ExecuteStep", limit)
	t.ok("ExecuteStep", err)
	t.that(o.header, "ExecuteStep", "a response header", "none")
	equal(t, "results of the step", 1, len(o.results))
	equal(t, "items after the result", 0, o.afterwards)
	return o
}

// succeeds is end for a step that does not fail.
func (s *step) succeeds(t *trial, limit time.Duration) outcome {
	o := s.end(t, limit)
	if f := o.result().GetFailure(); f != nil {
		t.failf("result of the step: expected no failure, actual %s: %s", f.GetMode(), f.GetMessage())
	}
	return o
}

// fails is end for a step that fails with a mode.
func (s *step) fails(t *trial, limit time.Duration, mode troupev1.FailureMode) outcome {
	o := s.end(t, limit)
	f := o.result().GetFailure()
	t.that(f != nil, "result of the step", "a failure", "none")
	equal(t, "failure of the step", mode, f.GetMode())
	return o
}

// says runs a step from begin to end and returns what it said.
func (in *instance) says(text string) string {
	return in.begin(text).succeeds(in.t, 5*time.Second).text()
}
