package steps

import (
	"strings"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func roundChecks() []check.Check {
	return []check.Check{
		{
			ID: "rounds/committed", Requirement: "CommitStepRequest.rounds", Run: checkRoundsAreCommitted,
			Title: "The commit of a step that called a tool has the call and its result as rounds; entries of the journal may have their content.",
		},
		{
			ID: "rounds/none-without-a-call", Requirement: "CommitStepRequest.rounds", Run: checkNoRoundsWithoutACall,
			Title: "The commit of a step that called no tool has no rounds.",
		},
		{
			ID: "rounds/loaded", Requirement: "ExecuteStepRequest.has_rounds", Run: checkRoundsAreLoaded,
			Title: "A step with has_rounds loads the rounds of its agent from the first message of its history on, with its credential; the agent sees them.",
		},
		{
			ID: "rounds/not-loaded-without-any", Requirement: "ExecuteStepRequest.has_rounds", Run: checkRoundsAreNotLoaded,
			Title: "A step without has_rounds does not call LoadRounds.",
		},
		{
			ID: "rounds/load-is-retried", Requirement: "MemoryService.LoadRounds", Run: checkLoadIsRetried,
			Title: "LoadRounds is called again while the memory service answers with UNAVAILABLE.",
		},
		{
			ID: "rounds/of-unseen-steps-are-left-out", Requirement: "ExecuteStepRequest.prior", Run: checkUnseenRoundsAreLeftOut,
			Title: "Of the rounds that follow the user's last message, the agent sees only those of steps whose results it was given.",
		},
	}
}

// roundsOf returns the rounds of a step with one call of the tool look.
func roundsOf(turn, step int32, after int64, word string) *troupev1.StepRounds {
	id := "look-" + word
	return &troupev1.StepRounds{Turn: turn, Step: step, After: after, Messages: []*troupev1.Message{
		{Role: troupev1.Role_ROLE_ASSISTANT, ToolCalls: []*troupev1.ToolCall{{Id: id, Name: "look", Arguments: `{"word":"` + word + `"}`}}},
		{Role: troupev1.Role_ROLE_TOOL, ToolCallId: id, Parts: textParts("found " + word)},
	}}
}

func textParts(text string) []*troupev1.Part {
	return []*troupev1.Part{{Content: &troupev1.Part_Text{Text: text}}}
}

func textOf(m *troupev1.Message) string {
	var text strings.Builder
	for _, p := range m.GetParts() {
		text.WriteString(p.GetText())
	}
	return text.String()
}

func checkRoundsAreCommitted(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	s := in.StartStep("look tea")
	check.Equal(t, "answer of the step", "found tea", s.RequireSuccess(t, check.AnswerLimit).Text())
	commit := s.RequireOneCommit(t)
	check.Equal(t, "messages of the commit", 1, len(commit.GetMessages()))
	rounds := t.Memory.StoredRounds(s.Req.GetSessionId())
	check.Equal(t, "messages in the rounds of the commit", 2, len(rounds))
	calls := rounds[0].GetToolCalls()
	check.Equal(t, "role of the first message", troupev1.Role_ROLE_ASSISTANT, rounds[0].GetRole())
	check.Equal(t, "calls of the first message", 1, len(calls))
	check.Equal(t, "name of the call", "look", calls[0].GetName())
	check.Equal(t, "role of the second message", troupev1.Role_ROLE_TOOL, rounds[1].GetRole())
	check.Equal(t, "tool_call_id of the second message", calls[0].GetId(), rounds[1].GetToolCallId())
	check.Equal(t, "text of the second message", "found tea", textOf(rounds[1]))
}

func checkNoRoundsWithoutACall(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	s := in.StartStep("say hello")
	s.RequireSuccess(t, check.AnswerLimit)
	check.Equal(t, "messages in the rounds of the commit", 0, len(s.RequireOneCommit(t).GetRounds()))
}

func checkRoundsAreLoaded(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	req := in.NewRequest("recall")
	req.HasRounds, req.Credential = true, "e30.one.A"
	s := in.SendStep(t.Ctx, req, check.Session{Rounds: []*troupev1.StepRounds{roundsOf(2, 1, 5, "tea"), roundsOf(2, 2, 6, "milk")}})
	check.Equal(t, "what the agent remembers", "found tea, found milk", s.RequireSuccess(t, check.AnswerLimit).Text())
	calls := t.Memory.LoadCalls(req.GetSessionId())
	check.Equal(t, "calls of LoadRounds", 1, len(calls))
	check.Equal(t, "agent of the call", req.GetAgent(), calls[0].Request.GetAgent())
	check.Equal(t, "from of the call", req.GetHistory()[0].GetSequence(), calls[0].Request.GetFrom())
	check.Equal(t, "credentials of the call", req.GetCredential(), strings.Join(calls[0].Credentials, " "))
	check.Equal(t, "messages in the rounds of the commit", 0, len(s.RequireOneCommit(t).GetRounds()))
}

func checkRoundsAreNotLoaded(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	s := in.SendStep(t.Ctx, in.NewRequest("recall"), check.Session{Rounds: []*troupev1.StepRounds{roundsOf(2, 1, 5, "tea")}})
	check.Equal(t, "what the agent remembers", "nothing", s.RequireSuccess(t, check.AnswerLimit).Text())
	check.Equal(t, "calls of LoadRounds", 0, len(t.Memory.LoadCalls(s.Req.GetSessionId())))
}

func checkLoadIsRetried(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	req := in.NewRequest("recall")
	req.HasRounds = true
	const outages = 3
	s := in.SendStep(t.Ctx, req, check.Session{Rounds: []*troupev1.StepRounds{roundsOf(2, 1, 5, "tea")}, RoundOutages: outages})
	check.Equal(t, "what the agent remembers after outages", "found tea", s.RequireSuccess(t, check.AnswerLimit).Text())
	check.Equal(t, "calls of LoadRounds with 3 outages", outages+1, len(t.Memory.LoadCalls(req.GetSessionId())))
}

func checkUnseenRoundsAreLeftOut(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	req := in.NewRequest("recall")
	req.HasRounds, req.Step = true, 3
	req.Prior = []*troupev1.StepResult{{Step: 1, Agent: req.GetAgent(), Text: "found milk"}}
	s := in.SendStep(t.Ctx, req, check.Session{Rounds: []*troupev1.StepRounds{
		roundsOf(2, 1, 5, "tea"), roundsOf(2, 2, 7, "dust"), roundsOf(3, 1, 7, "milk"), roundsOf(3, 2, 7, "salt"),
	}})
	check.Equal(t, "what the agent remembers", "found tea, found milk", s.RequireSuccess(t, check.AnswerLimit).Text())
}
