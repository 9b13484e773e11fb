// Package pendingcall assigns ids to the tool calls of a turn that wait for an answer, and checks the answers to
// them.
package pendingcall

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// ID returns the id of a tool call, made of its turn, its step and its number in the step. All three count from 1.
func ID(turn, step, number int) string { return fmt.Sprintf("%d-%d-%d", turn, step, number) }

// NeedsAuth reports whether any of the waiting calls needs a credential.
func NeedsAuth(waiting []execution.Pending) bool {
	return slices.ContainsFunc(waiting, func(p execution.Pending) bool { return p.Needs == execution.NeedAuth })
}

// allowedVerdicts lists, for each need, the verdicts that an answer may have.
var allowedVerdicts = map[execution.Need][]execution.Verdict{
	execution.NeedApproval: {execution.Approve, execution.Deny, execution.Stop},
	execution.NeedResult:   {execution.Succeed, execution.Fail},
	execution.NeedAuth:     {execution.Approve, execution.Deny, execution.Stop},
}

// CheckAnswers checks answers against the waiting calls. It returns the answers with the agent, the digest and the
// auth id of their calls filled in, and marks late ones. Calls without an answer keep waiting. An invalid answer
// is an error of mode user_invalid_input that names the answer and says what is expected.
func CheckAnswers(waiting []execution.Pending, answers []execution.Answer, now time.Time) ([]execution.Answer, error) {
	const op = "pendingcall.CheckAnswers"
	if len(answers) == 0 {
		return nil, failure.Newf(failure.UserInvalidInput, op, "answers: there is none; waiting: %s", joinIDs(waiting))
	}
	checked := slices.Clone(answers)
	for i, a := range checked {
		at := slices.IndexFunc(waiting, func(p execution.Pending) bool { return p.ID == a.ID })
		if at < 0 {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].id: no call %q waits here; waiting: %s", i, a.ID, joinIDs(waiting))
		}
		if slices.ContainsFunc(checked[:i], func(earlier execution.Answer) bool { return earlier.ID == a.ID }) {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].id: %q is answered twice; answer it once", i, a.ID)
		}
		p := waiting[at]
		if allowed := allowedVerdicts[p.Needs]; !slices.Contains(allowed, a.Verdict) {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].verdict: %q does not answer a call of %s that waits for its %s; say one of %v",
				i, a.Verdict, p.Tool, p.Needs, allowed)
		}
		if len(a.Text) > execution.MaxAnswerBytes {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].text: %d bytes, at most %d; store more as an artifact", i,
				len(a.Text), execution.MaxAnswerBytes)
		}
		if a.Sealed != "" && (p.Auth == nil || a.Verdict != execution.Approve) {
			return nil, failure.Newf(failure.UserInvalidInput, op,
				"answers[%d].sealed: only an approval of a call that waits for a credential has one; leave it out", i)
		}
		if len(a.Sealed) > broker.MaxSealedBytes {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].sealed: %d bytes, at most %d", i, len(a.Sealed), broker.MaxSealedBytes)
		}
		checked[i].AuthID = ""
		if p.Auth != nil {
			checked[i].AuthID = p.Auth.ID
		}
		checked[i].Late = !p.Until.IsZero() && now.After(p.Until)
		if checked[i].Late {
			checked[i].Sealed = "" // the call is denied, so nothing may open it
		}
		checked[i].Agent, checked[i].Digest = p.Agent, stepjournal.CallDigest(p.Tool, p.Arguments)
	}
	return checked, nil
}

func joinIDs(waiting []execution.Pending) string {
	all := make([]string, len(waiting))
	for i, p := range waiting {
		all[i] = p.ID
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
