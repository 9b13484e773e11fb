package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

const agentName = "parrot"

// admit admits a step and returns its context and the function that ends it. If the instance rejects the step,
// admit returns an error.
func (r *referenceInstance) admit(ctx context.Context) (context.Context, func(failed bool), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	capacity := r.status.Capacity
	if r.hasFault(admitsOverCapacity) {
		capacity++
	}
	switch s := r.status; {
	case s.State == check.Uninitialized, s.State == check.Initializing:
		return nil, nil, newWrongStateError("ExecuteStep", s, "[ready busy]")
	case s.State == check.Paused, s.Pausing:
		if r.hasFault(omitsErrorDetails) {
			return nil, nil, grpcstatus.Error(codes.Unavailable, "paused")
		}
		return nil, nil, failure.New(failure.InstancePaused, "ExecuteStep", "paused")
	case r.isShutDown():
		return nil, nil, failure.New(failure.InstanceDraining, "ExecuteStep", "draining")
	case s.InFlight >= capacity:
		if r.hasFault(countsRejectedSteps) {
			r.metrics.TotalRequests++
		}
		return nil, nil, failure.New(failure.InstanceFull, "ExecuteStep", "full")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &admittedStep{cancel}
	r.steps[s] = struct{}{}
	r.status.InFlight++
	r.metrics.TotalRequests++
	if r.status.State == check.Ready {
		r.transition(ctx, check.Busy, "")
	}
	return ctx, func(failed bool) { r.endStep(ctx, s, failed) }, nil
}

func (r *referenceInstance) endStep(ctx context.Context, s *admittedStep, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.cancel(nil)
	delete(r.steps, s)
	r.status.InFlight--
	if failed {
		r.metrics.FailedRequests++
	}
	if r.status.InFlight == 0 && !r.hasFault(reportsDrainingTooLong) {
		r.status.Draining = false
	}
	switch {
	case r.status.InFlight == 0 && r.status.Pausing:
		r.status.Pausing = false
		r.transition(ctx, check.Paused, r.status.Reason)
	case r.status.InFlight == 0 && (r.status.State == check.Busy || r.hasFault(readyAfterEveryStep)):
		r.transition(ctx, check.Ready, "")
	default:
		r.notifyWatchers()
	}
}

// ExecuteStep implements troupev1.AgentServiceServer.
func (r *referenceInstance) ExecuteStep(req *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepServer) (err error) {
	if req.GetAgent() != agentName {
		return failure.New(failure.AgentState, "ExecuteStep", "agent: not hosted here")
	}
	ctx, end, err := r.admit(stream.Context())
	if err != nil {
		return err
	}
	failed := true
	defer func() { end(failed) }()
	if !r.hasFault(sendsHeaderLate) {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	result, err := r.runStep(ctx, req, stream)
	if err != nil {
		if r.hasFault(failsStreamOnStepError) {
			return err
		}
		result = &troupev1.StepResult{Step: req.GetStep(), Agent: req.GetAgent(), Failure: grpcfailure.ToProto(err)}
	}
	failed = err != nil
	if r.hasFault(omitsResult) {
		return nil
	}
	if r.hasFault(sendsTwoResults) {
		_ = stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: result}})
	}
	return stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: result}})
}

func (r *referenceInstance) runStep(ctx context.Context, req *troupev1.ExecuteStepRequest,
	stream troupev1.AgentService_ExecuteStepServer,
) (*troupev1.StepResult, error) {
	beat := func() error {
		return stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Heartbeat{Heartbeat: &troupev1.Heartbeat{}}})
	}
	send := func(e *troupev1.Event) error {
		e.Time = timestamppb.Now()
		return stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: e}})
	}
	text, err := r.runTestAgent(ctx, req, beat, func(text string) error {
		return send(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}})
	})
	if said, ok := strings.CutPrefix(text, "emit "); ok && err == nil {
		name, data, _ := strings.Cut(said, " ")
		text = name
		if !r.hasFault(dropsCustomEvents) {
			err = send(&troupev1.Event{Payload: &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: name, Data: data}}})
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil && !r.hasFault(commitsCancelled) {
		if cause, ok := errors.AsType[*failure.Error](context.Cause(ctx)); ok {
			return nil, cause
		}
		return nil, err
	}
	result := &troupev1.StepResult{Step: req.GetStep(), Agent: req.GetAgent(), Text: text}
	if r.hasFault(sendsResultBeforeCommit) {
		_ = stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: result}})
	}
	last, err := r.commitStep(context.WithoutCancel(ctx), req, result)
	if err != nil {
		return nil, err
	}
	sent := proto.CloneOf(result)
	sent.Sequence = last
	return sent, nil
}

func (r *referenceInstance) commitStep(ctx context.Context, req *troupev1.ExecuteStepRequest, result *troupev1.StepResult) (int64, error) {
	c := &troupev1.CommitStepRequest{
		SessionId: req.GetSessionId(), TurnId: req.GetTurnId(), Epoch: req.GetEpoch(), BaseSequence: req.GetBaseSequence(), Result: result,
		Rounds: r.toolRounds(req),
		Messages: []*troupev1.Message{{
			Role: troupev1.Role_ROLE_ASSISTANT, Author: agentName, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: result.GetText()}}},
		}},
	}
	if req.GetLast() || r.hasFault(alwaysClosesTurn) {
		c.Outcome = troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED
	}
	if r.hasFault(truncatesEpoch) {
		c.Epoch = int64(int32(c.Epoch)) + c.Epoch>>32
	}
	if !r.hasFault(omitsCredential) {
		ctx = turnctx.WithOutgoingCredential(turnctx.WithCredential(ctx, req.GetCredential()))
	}
	for tries := 0; ; tries++ {
		reply, err := r.memory.CommitStep(ctx, c)
		err = grpcfailure.FromStatus("memory.CommitStep", err)
		again := failure.Is(err, failure.SystemNetwork) && !r.hasFault(neverRetriesCommit) ||
			failure.Is(err, failure.Fenced) && r.hasFault(retriesFencedCommit) && tries < 3
		if !again {
			return reply.GetLastSequence(), err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// lastCommand returns the last message of the user.
func lastCommand(req *troupev1.ExecuteStepRequest) (text string) {
	for _, m := range req.GetHistory() {
		if m.GetRole() == troupev1.Role_ROLE_USER {
			text = m.GetParts()[0].GetText()
		}
	}
	return text
}

// toolRounds returns the rounds of the step for its commit.
func (r *referenceInstance) toolRounds(req *troupev1.ExecuteStepRequest) []*troupev1.RoundMessage {
	word, looked := strings.CutPrefix(lastCommand(req), "look ")
	if !looked && !r.hasFault(inventsRounds) || r.hasFault(omitsRounds) {
		return nil
	}
	return []*troupev1.RoundMessage{
		{Message: &troupev1.Message{Role: troupev1.Role_ROLE_ASSISTANT, ToolCalls: []*troupev1.ToolCall{{Id: "1", Name: "look", Arguments: "{}"}}}},
		{Message: &troupev1.Message{
			Role: troupev1.Role_ROLE_TOOL, ToolCallId: "1", Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "found " + word}}},
		}},
	}
}

// recall returns the results of the tool calls that the agent remembers.
func (r *referenceInstance) recall(ctx context.Context, req *troupev1.ExecuteStepRequest) (string, error) {
	if !req.GetHasRounds() && !r.hasFault(alwaysLoadsRounds) || r.hasFault(neverLoadsRounds) {
		return "nothing", nil
	}
	if !r.hasFault(loadsRoundsWithoutCredential) {
		ctx = turnctx.WithOutgoingCredential(turnctx.WithCredential(ctx, req.GetCredential()))
	}
	for {
		loaded, err := r.memory.LoadRounds(ctx, &troupev1.LoadRoundsRequest{
			SessionId: req.GetSessionId(), Agent: req.GetAgent(), From: req.GetHistory()[0].GetSequence(),
		})
		err = grpcfailure.FromStatus("memory.LoadRounds", err)
		if failure.Is(err, failure.SystemNetwork) && !r.hasFault(neverRetriesLoad) {
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return "", err
			}
			continue
		}
		var results []string
		for _, s := range loaded.GetSteps() {
			isPrior := func(p *troupev1.StepResult) bool { return p.GetStep() == s.GetStep() }
			if s.GetAfter() >= req.GetBaseSequence() && !slices.ContainsFunc(req.GetPrior(), isPrior) && !r.hasFault(showsUnseenRounds) {
				continue
			}
			results = append(results, s.GetMessages()[1].GetParts()[0].GetText())
		}
		return strings.Join(results, ", "), err
	}
}

// runTestAgent is the test agent.
func (r *referenceInstance) runTestAgent(ctx context.Context, req *troupev1.ExecuteStepRequest, beat func() error, say func(string) error) (text string,
	err error,
) {
	defer func() {
		if p := recover(); p != nil {
			err = failure.New(failure.AgentLogic, "parrot", "the agent threw")
		}
	}()
	text = lastCommand(req)
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "look":
		return "found " + rest, nil
	case "recall":
		return r.recall(ctx, req)
	case "say":
		return rest, say(rest)
	case "count":
		var all strings.Builder
		n, err := strconv.Atoi(rest)
		for i := range n {
			piece := i + 1
			if r.hasFault(shufflesDeltas) {
				piece = n - i
			}
			all.WriteString(strconv.Itoa(i + 1))
			if err := say(strconv.Itoa(piece)); err != nil {
				return "", err
			}
		}
		return all.String(), err
	case "sleep":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return "", err
		}
		for ; d > time.Second && !r.hasFault(omitsHeartbeats); d -= time.Second {
			if err := errors.Join(sleep(ctx, time.Second), beat()); err != nil {
				return "", err
			}
		}
		return "slept", sleep(ctx, d)
	case "fail":
		return "", failure.New(failure.AgentLogic, "parrot", "asked to fail")
	case "panic":
		panic("asked to")
	case "own":
		if r.lookUpOwner(rest).GetOwns() {
			return "owns", nil
		}
		return "does not own", nil
	default:
		return text, nil
	}
}
