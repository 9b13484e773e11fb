package hook

import "github.com/troupe-dev/troupe/pkg/execution"

// callWait holds whether a tool call may wait for external input, and which input it has or lacks.
type callWait struct {
	CanContinue bool             // a journal keeps what was done, so another turn can continue
	WaitedOrRan bool             // the call waited or ran in an earlier attempt or turn
	Answer      execution.Answer // the answer that this turn brought (zero when there is none)
	Approved    bool             // a handler had a person allow the call within the turn
	Login       *execution.Login // the credential that the call lacks (nil when it lacks none)
}

// Proceeds reports whether the answer lets the call continue. A tool that ran at the client had been allowed.
func (w callWait) Proceeds() bool {
	a := w.Answer
	return !a.Late && (a.Verdict == execution.Approve || a.Verdict == execution.Succeed || a.Verdict == execution.Fail)
}
