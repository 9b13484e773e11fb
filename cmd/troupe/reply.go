package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// reply is the view of a turn for who talks with it: what is said, and one line for each tool.
type reply struct {
	view
	speaker string            // who spoke last
	tools   map[string]string // arguments of the tools that run, by step and call id
}

// show prints a turn from where it was left to its end, and keeps what waits behind it.
func (t *talk) show(all stream) error {
	r := &reply{view: view{term: t.term}, tools: map[string]string{}}
	for e, err := range all {
		if err != nil {
			r.endText()
			return err
		}
		t.begun = true
		if s := e.GetSequence(); s > 0 {
			if s <= t.seen {
				continue // the trace was asked for again
			}
			t.seen = s
		}
		r.event(e)
		if end := e.GetTurnResult(); end != nil {
			t.waits = end.GetPending()
		}
	}
	return nil
}

func (r *reply) event(e *troupev1.Event) {
	call := func(id string) string { return fmt.Sprint(e.GetStep(), " ", id) }
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted, *troupev1.Event_Plan, *troupev1.Event_RoutingDecision, *troupev1.Event_StepFinished, *troupev1.Event_ToolCallPending:
	case *troupev1.Event_StepStarted:
		r.streamed = ""
	case *troupev1.Event_TextDelta:
		if r.speaker != e.GetAgent() {
			r.speaker = e.GetAgent()
			r.line("%s", r.term.paint(dim, oneLine(r.speaker)+":"))
		}
		r.text(p.TextDelta.GetText())
	case *troupev1.Event_ToolCallStarted:
		r.tools[call(p.ToolCallStarted.GetCallId())] = brief(p.ToolCallStarted.GetArguments(), 60)
	case *troupev1.Event_ToolCallFinished:
		f := p.ToolCallFinished
		r.line("  %s", r.term.paint(dim, fmt.Sprintf("tool %s %s → %s after %s: %s", oneLine(f.GetTool()), r.tools[call(f.GetCallId())],
			toolStatus(f.GetStatus()), short(f.GetDuration()), brief(f.GetSummary(), 80))))
	case *troupev1.Event_TurnResult:
		r.result(p.TurnResult)
	default:
		r.view.event(e)
	}
}

// answer asks about the calls that wait, one after the other, until none does or the user
// leaves them waiting. It reports whether the conversation goes on.
func (t *talk) answer(ctx context.Context) bool {
	for {
		answers, stays := t.round()
		if len(answers) == 0 {
			return stays
		}
		if !stays {
			t.note("What you decided is sent; the rest waits on.")
		}
		later := t.later
		t.send(ctx, replied(answers))
		t.later = later
		if !stays {
			return false
		}
	}
}

// round asks once about each call that waits and was not put off. It reports false when the
// user leaves; what they decided before that counts.
func (t *talk) round() (answers []*troupev1.CallAnswer, stays bool) {
	for _, p := range t.waits {
		if t.putOff(p) {
			continue
		}
		a, ok := t.decide(p)
		switch {
		case !ok:
			return answers, false
		case a == nil:
			t.leaveWaiting(p)
			continue
		}
		answers = append(answers, a)
		if a.GetVerdict() == troupev1.CallVerdict_CALL_VERDICT_STOP {
			break
		}
	}
	return answers, true
}

// putOff reports whether the user left the call waiting, in this turn or in one before it:
// the call has another id in each.
func (t *talk) putOff(p *troupev1.PendingCall) bool {
	return slices.ContainsFunc(t.later, func(id string) bool { return execution.Answer{ID: id}.To(p.GetId()) })
}

func (t *talk) leaveWaiting(p *troupev1.PendingCall) {
	t.later = append(t.later, p.GetId())
	t.note("It waits. /pending asks again; a message in its place leaves it undone.")
}

// decide asks about one call. Nil: it shall go on waiting. It reports false when the user
// leaves.
func (t *talk) decide(p *troupev1.PendingCall) (*troupev1.CallAnswer, bool) {
	fmt.Fprintf(t.term.out, "\n%s\n", t.term.decidable(p))
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_AUTH {
		return t.login(p)
	}
	prompt, understand := "Allow it? y, n WHY, s WHY (stop the turn), Enter (later): ", allowed
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_RESULT {
		prompt, understand = "Its result in one line, /fail WHY, or Enter (later): ", ran
	}
	for asked := time.Now(); ; {
		text, ok := t.readSince(prompt, asked)
		text = strings.TrimSpace(text)
		switch {
		case !ok || text == "/quit":
			return nil, false
		case text == "":
			return nil, true
		}
		if verdict, why := understand(text); verdict != 0 {
			return &troupev1.CallAnswer{Id: p.GetId(), Verdict: verdict, Text: strings.ToValidUTF8(why, "\uFFFD")}, true
		}
	}
}

// allowed is what a line says of a call that waits for an approval; 0: nothing that is
// understood.
func allowed(text string) (troupev1.CallVerdict, string) {
	word, why, _ := strings.Cut(text, " ")
	why = strings.TrimSpace(why)
	switch strings.ToLower(strings.TrimRight(word, ",.:;!")) {
	case "y", "yes":
		if why == "" { // a yes with a condition is none
			return troupev1.CallVerdict_CALL_VERDICT_APPROVE, ""
		}
		return 0, ""
	case "n", "no":
		return troupev1.CallVerdict_CALL_VERDICT_DENY, why
	case "s", "stop":
		return troupev1.CallVerdict_CALL_VERDICT_STOP, why
	default:
		return 0, ""
	}
}

// ran is what a line says of a call that the user ran.
func ran(text string) (troupev1.CallVerdict, string) {
	if why, failed := strings.CutPrefix(text, "/fail"); failed && (why == "" || why[0] == ' ') {
		return troupev1.CallVerdict_CALL_VERDICT_FAIL, strings.TrimSpace(why)
	}
	if strings.HasPrefix(text, "/") {
		return 0, "" // a command that is none here
	}
	return troupev1.CallVerdict_CALL_VERDICT_SUCCEED, text
}
