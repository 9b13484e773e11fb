package turnstate

import "github.com/troupe-dev/troupe/pkg/execution"

// CallWait holds what is known about the waiting of a tool call: whether it may wait, the answer it got, and the
// credential that it lacks.
type CallWait struct {
	CanContinue    bool             // the turn has a journal, so another turn can continue the call
	WaitedOrRan    bool             // the call waited or ran in an earlier attempt or turn
	Answer         execution.Answer // the answer that this turn brought (zero when there is none)
	ApprovedInTurn bool             // a person allowed the call within the turn, through a handler
	MissingLogin   *execution.Login // the credential that the call lacks (nil when it lacks none)
}

// Proceeds reports whether the answer lets the call continue. A result from the client (Succeed or Fail) counts as
// well, because the client ran the tool.
func (w CallWait) Proceeds() bool {
	a := w.Answer
	return !a.Late && (a.Verdict == execution.Approve || a.Verdict == execution.Succeed || a.Verdict == execution.Fail)
}
