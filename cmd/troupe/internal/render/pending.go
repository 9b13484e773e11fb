package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// riskTexts explains the risk of a tool call to the person who decides about it.
var riskTexts = map[string]string{
	"read":         "reads only",
	"idempotent":   "may run again without harm",
	"at_most_once": "may do harm if it runs again",
}

// NeededInput returns in one word what a pending call waits for.
func NeededInput(p *troupev1.PendingCall) string {
	switch p.GetNeeds() {
	case troupev1.CallNeed_CALL_NEED_RESULT:
		return "result"
	case troupev1.CallNeed_CALL_NEED_AUTH:
		return "auth"
	default:
		return "approval"
	}
}

// NeededInputText returns what a pending call waits for, as part of a sentence.
func NeededInputText(p *troupev1.PendingCall) string {
	switch p.GetNeeds() {
	case troupev1.CallNeed_CALL_NEED_RESULT:
		return "a result, for it is yours to run"
	case troupev1.CallNeed_CALL_NEED_AUTH:
		return "a credential, and may run with it"
	default:
		return "an approval"
	}
}

// PendingCall describes a pending call with all information that the user needs to decide. It shows the arguments
// in full, because the user approves exactly these arguments.
func PendingCall(t console.Terminal, p *troupev1.PendingCall) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %s  %s\n", t.ApplyStyle(console.Dim, fmt.Sprintf("%-9s", name)), fmt.Sprintf(format, args...))
	}
	row("call", "%s  %s waits for %s", console.EscapeLine(p.GetId()), t.ApplyStyle(console.Bold, console.EscapeLine(p.GetTool())), NeededInputText(p))
	if risk := console.EscapeLine(p.GetRisk()); riskTexts[risk] != "" {
		row("risk", "%s: %s", risk, riskTexts[risk])
	} else if risk != "" {
		row("risk", "%s", risk)
	}
	if p.GetReason() != "" {
		row("reason", "%s", console.EscapeLine(p.GetReason()))
	}
	if auth := p.GetAuth(); auth != nil {
		row("lacks", "%s: %s", console.EscapeLine(auth.GetName()), console.EscapeLine(auth.GetPrompt()))
		if auth.GetUrl() != "" {
			row("from", "%s", console.EscapeLine(auth.GetUrl()))
		}
	}
	if p.GetUntil() != nil {
		row("until", "%s, %s; an answer after that counts as a denial", console.FormatTime(p.GetUntil()), console.FormatTimeLeft(p.GetUntil()))
	}
	row("arguments", "%s", strings.ReplaceAll(formatArguments(p.GetArguments()), "\n", "\n             "))
	return strings.TrimSuffix(b.String(), "\n")
}

// formatArguments formats a JSON object for a person. It uses one line if the object fits.
func formatArguments(text string) string {
	const width = 80
	if flat := console.EscapeLine(strings.TrimSpace(text)); len(flat) <= width {
		return flat
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return console.EscapeLine(text) // the text is not JSON, so its line ends are escaped
	}
	return console.EscapeExcept(b.String(), "\n")
}

// AnswerCommands returns the shell commands that answer the pending calls of a session.
func AnswerCommands(s remote.Server, session string, p *troupev1.PendingCall) []string {
	of := s.Flags() + " " + console.QuoteForShell(session) + " " + console.QuoteForShell(p.GetId())
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_RESULT {
		return []string{"troupe answer" + of + " RESULT"}
	}
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_AUTH {
		return []string{"troupe answer" + of, "troupe deny" + of + " --reason WHY"}
	}
	return []string{"troupe approve" + of, "troupe deny" + of + " --reason WHY"}
}
