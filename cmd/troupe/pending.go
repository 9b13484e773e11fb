package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// risks is what running a tool may do, for the person who decides about it.
var risks = map[string]string{
	"read":         "reads only",
	"idempotent":   "may run again without harm",
	"at_most_once": "may do harm if it runs again",
}

// awaited is what a call waits for.
func awaited(p *troupev1.PendingCall) string {
	switch p.GetNeeds() {
	case troupev1.CallNeed_CALL_NEED_RESULT:
		return "result"
	case troupev1.CallNeed_CALL_NEED_AUTH:
		return "auth"
	default:
		return "approval"
	}
}

// needed is the same in a sentence.
func needed(p *troupev1.PendingCall) string {
	switch p.GetNeeds() {
	case troupev1.CallNeed_CALL_NEED_RESULT:
		return "a result, for it is yours to run"
	case troupev1.CallNeed_CALL_NEED_AUTH:
		return "a credential, and may run with it"
	default:
		return "an approval"
	}
}

// decidable is all that a person needs to know of a call that waits. The arguments are whole:
// what is not shown cannot be decided about.
func (t terminal) decidable(p *troupev1.PendingCall) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %s  %s\n", t.paint(dim, fmt.Sprintf("%-9s", name)), fmt.Sprintf(format, args...))
	}
	row("call", "%s  %s waits for %s", oneLine(p.GetId()), t.paint(bold, oneLine(p.GetTool())), needed(p))
	if risk := oneLine(p.GetRisk()); risks[risk] != "" {
		row("risk", "%s: %s", risk, risks[risk])
	} else if risk != "" {
		row("risk", "%s", risk)
	}
	if p.GetReason() != "" {
		row("reason", "%s", oneLine(p.GetReason()))
	}
	if auth := p.GetAuth(); auth != nil {
		row("lacks", "%s: %s", oneLine(auth.GetName()), oneLine(auth.GetPrompt()))
		if auth.GetUrl() != "" {
			row("from", "%s", oneLine(auth.GetUrl()))
		}
	}
	if p.GetUntil() != nil {
		row("until", "%s, %s; an answer after that counts as a denial", clock(p.GetUntil()), left(p.GetUntil()))
	}
	row("arguments", "%s", strings.ReplaceAll(arguments(p.GetArguments()), "\n", "\n             "))
	return strings.TrimSuffix(b.String(), "\n")
}

// arguments are a JSON object as a person reads it: on one line when it fits.
func arguments(text string) string {
	const width = 80
	if flat := oneLine(strings.TrimSpace(text)); len(flat) <= width {
		return flat
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return oneLine(text) // no JSON: its lines are not ours
	}
	return escaped(b.String(), "\n")
}

// clock is a time of today, or the day with it.
func clock(t *timestamppb.Timestamp) string {
	at := t.AsTime().Local()
	if at.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// left is the time that is left until then.
func left(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	if d := time.Until(t.AsTime()); d > 0 {
		return max(d.Round(time.Second), time.Second).String() + " left"
	}
	return "too late"
}

// ways are the commands that answer a call of a session.
func (s server) ways(session string, p *troupev1.PendingCall) []string {
	of := s.flag() + " " + word(session) + " " + word(p.GetId())
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_RESULT {
		return []string{"troupe answer" + of + " RESULT"}
	}
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_AUTH {
		return []string{"troupe answer" + of, "troupe deny" + of + " --reason WHY"}
	}
	return []string{"troupe approve" + of, "troupe deny" + of + " --reason WHY"}
}
