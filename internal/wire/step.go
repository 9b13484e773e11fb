package wire

import (
	"cmp"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// StepFromProto converts a request to the step that an agent runs.
func StepFromProto(req *troupev1.ExecuteStepRequest) execution.Step {
	step := execution.Step{
		TraceID:      req.GetTraceId(),
		SessionID:    req.GetSessionId(),
		User:         req.GetUserId(),
		TurnID:       req.GetTurnId(),
		Turn:         int(req.GetTurn()),
		Number:       int(req.GetStep()),
		Attempt:      int(req.GetAttempt()),
		Agent:        req.GetAgent(),
		Routes:       req.GetRoutes(),
		Silent:       req.GetSilent(),
		Tools:        toolsFromProto(req.GetTools()),
		Answers:      AnswersFromProto(req.GetAnswers()),
		Assignment:   assignmentFromProto(req),
		Budget:       LedgerFromProto(req.GetBudget()),
		OriginTurnID: req.GetOriginTurnId(),
		Recorded:     req.GetRecorded(),

		RootTraceID: cmp.Or(req.GetRootTraceId(), req.GetTraceId()),
	}
	if c, err := execution.NewContext(originFromProto(req)); err == nil { // the validated request satisfies these rules, too
		step.Context = c
	}
	for _, m := range req.GetHistory() {
		step.History = append(step.History, MessageFromProto(m))
	}
	for _, r := range req.GetPrior() {
		step.Prior = append(step.Prior, ResultFromProto(r))
	}
	return step
}

// toolsFromProto converts the list of tools that a step may use (nil means all tools).
func toolsFromProto(t *troupev1.AllowedTools) *execution.Tools {
	if t == nil {
		return nil
	}
	return &execution.Tools{Names: t.GetNames()}
}

// originFromProto returns the origin of a step: its trace, run, request, user and session, with the profile and
// the metadata. The conversation id is the session id.
func originFromProto(req *troupev1.ExecuteStepRequest) execution.Origin {
	o := execution.Origin{
		TraceID: req.GetTraceId(), RequestID: req.GetRequestId(), Profile: req.GetProfile(), UserID: req.GetUserId(),
		ConversationID: req.GetSessionId(), SessionID: req.GetSessionId(), Metadata: req.GetMetadata(), RootTraceID: req.GetRootTraceId(),
	}
	if o.UserID != "" {
		o.MemoryScope = "user:" + o.UserID
	}
	return o
}
