package interact

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// answerPending asks about the pending calls until none is left or the user postpones the remaining ones. It
// returns false when the chat must end.
func (c *chatSession) answerPending(ctx context.Context) bool {
	for {
		answers, stays := c.askPendingOnce()
		if len(answers) == 0 {
			return stays
		}
		if !stays {
			c.printNote("Your decisions are sent; the other calls still wait.")
		}
		later := c.postponed
		c.send(ctx, answersRequest(answers))
		c.postponed = later
		if !stays {
			return false
		}
	}
}

// askPendingOnce asks once about each pending call that the user has not postponed. It returns false when the user
// leaves. The decisions that the user already made are sent even then.
func (c *chatSession) askPendingOnce() (answers []*troupev1.CallAnswer, stays bool) {
	for _, p := range c.pending {
		if c.isPostponed(p) {
			continue
		}
		a, ok := c.askDecision(p)
		switch {
		case !ok:
			return answers, false
		case a == nil:
			c.postpone(p)
			continue
		}
		answers = append(answers, a)
		if a.GetVerdict() == troupev1.CallVerdict_CALL_VERDICT_STOP {
			break
		}
	}
	return answers, true
}

// isPostponed reports whether the user postponed the call, in this turn or in an earlier one. It does not compare
// ids directly, because a call gets a new id in each turn.
func (c *chatSession) isPostponed(p *troupev1.PendingCall) bool {
	return slices.ContainsFunc(c.postponed, func(id string) bool { return execution.Answer{ID: id}.IsFor(p.GetId()) })
}

func (c *chatSession) postpone(p *troupev1.PendingCall) {
	c.postponed = append(c.postponed, p.GetId())
	c.printNote("It waits. /pending asks again; a message in its place leaves it undone.")
}

// askDecision asks the user to decide about one call. It returns a nil answer if the user postpones the call, and
// false if the user leaves.
func (c *chatSession) askDecision(p *troupev1.PendingCall) (*troupev1.CallAnswer, bool) {
	fmt.Fprintf(c.term.Out, "\n%s\n", render.PendingCall(c.term, p))
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_AUTH {
		return c.askCredential(p)
	}
	prompt, understand := "Allow it? y, n WHY, s WHY (stop the turn), Enter (later): ", parseApproval
	if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_RESULT {
		prompt, understand = "Its result in one line, /fail WHY, or Enter (later): ", parseResult
	}
	for asked := time.Now(); ; {
		text, ok := c.promptSince(prompt, asked)
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

// parseApproval parses the user's answer to a call that needs an approval (zero values if the line contains no
// verdict).
func parseApproval(text string) (troupev1.CallVerdict, string) {
	word, why, _ := strings.Cut(text, " ")
	why = strings.TrimSpace(why)
	switch strings.ToLower(strings.TrimRight(word, ",.:;!")) {
	case "y", "yes":
		if why == "" { // "yes" followed by a condition is no approval
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

// parseResult parses the result of a call that the user ran (zero values if the line is a chat command).
func parseResult(text string) (troupev1.CallVerdict, string) {
	if why, failed := strings.CutPrefix(text, "/fail"); failed && (why == "" || why[0] == ' ') {
		return troupev1.CallVerdict_CALL_VERDICT_FAIL, strings.TrimSpace(why)
	}
	if strings.HasPrefix(text, "/") {
		return 0, "" // a command that has no meaning here
	}
	return troupev1.CallVerdict_CALL_VERDICT_SUCCEED, text
}
