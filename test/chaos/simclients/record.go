package simclients

import (
	"maps"
	"slices"
	"sync"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// runRecord stores what the clients sent and which answers they received. It is safe for concurrent use.
type runRecord struct {
	sessions *history.Log // of appends and loads, for model M1
	registry *history.Log // of requests and results, for model M2

	mu              sync.Mutex
	requests        map[string]request // keyed by mark
	acknowledged    map[string][]verify.AcknowledgedTurn
	failed          map[string]bool // keyed by mark
	foundViolations []violation.Violation
	counts          Counts
}

// request is what the record stores about a sent request.
type request struct {
	steps       int
	firstSentAt int64 // time before the first sending
}

func newRecord(clock *history.Clock) *runRecord {
	return &runRecord{
		sessions: history.NewLog(clock), registry: history.NewLog(clock),
		requests: map[string]request{}, acknowledged: map[string][]verify.AcknowledgedTurn{}, failed: map[string]bool{},
	}
}

// addRequest records a request that is about to be sent.
func (r *runRecord) addRequest(mark string, steps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[mark] = request{steps, r.sessions.Now()}
}

// stepCount returns the number of steps that the turn of a request has.
func (r *runRecord) stepCount(mark string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests[mark].steps
}

// addAcknowledged records the answers of a turn. If several callers sent the request, only the first one counts.
// The recorded sequence is the last message's at the time of the result.
func (r *runRecord) addAcknowledged(session, mark string, answers []string, last, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.acknowledged[session], func(a verify.AcknowledgedTurn) bool { return a.Mark == mark }) {
		return
	}
	r.counts.Turns++
	r.acknowledged[session] = append(r.acknowledged[session], verify.AcknowledgedTurn{Mark: mark, Answers: answers})
	r.sessions.AddUntil(r.requests[mark].firstSentAt, at, history.Append{Session: session, Key: mark}, history.AppendResult{Sequence: last})
}

// addFailure records a turn that failed.
func (r *runRecord) addFailure(mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[mark] = true
}

func (r *runRecord) countBurst() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Bursts++
}

func (r *runRecord) countDisconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Disconnects++
}

func (r *runRecord) addViolation(check, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.foundViolations = append(r.foundViolations, violation.Newf(check, format, args...))
}

func (r *runRecord) violations() []violation.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.foundViolations)
}

func (r *runRecord) snapshot() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	counts.Failed = len(r.failed)
	return counts
}

func (r *runRecord) requestedMarks() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]bool{}
	for mark := range r.requests {
		all[mark] = true
	}
	return all
}

func (r *runRecord) committedSteps() (all []verify.CommittedStep) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, turns := range r.acknowledged {
		for _, turn := range turns {
			for i, text := range turn.Answers {
				all = append(all, verify.CommittedStep{Mark: turn.Mark, Step: i + 1, Text: text})
			}
		}
	}
	return all
}

func (r *runRecord) acknowledgedSessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.acknowledged))
}

// checkHistories checks models M1 and M2.
func (r *runRecord) checkHistories() []violation.Violation {
	return append(history.CheckSessionLog(r.sessions), history.CheckTurnRegistry(r.registry)...)
}

// checkSession compares the messages of a session with the turns that were acknowledged and that failed.
func (r *runRecord) checkSession(session string, messages []*troupev1.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.foundViolations = append(r.foundViolations, verify.CheckHistory(session, messages, r.acknowledged[session])...)
	for mark := range r.failed {
		if answers := answersTo(mark, messages); len(answers) == r.requests[mark].steps {
			r.foundViolations = append(r.foundViolations, violation.Newf(CheckCompletion, "%s is reported as failed, and its session has %d answers", mark,
				len(answers)))
		}
	}
}

// addLoad records a read of a whole session that began at the given time.
func (r *runRecord) addLoad(began int64, session string, messages []*troupev1.Message) {
	r.mu.Lock()
	loaded := r.toLoadResult(messages)
	r.mu.Unlock()
	r.sessions.Add(began, history.Load{Session: session}, loaded)
}

// toLoadResult returns a session as model M1 sees it: its complete turns, and where each of them ends. It leaves
// out the messages of open turns.
func (r *runRecord) toLoadResult(messages []*troupev1.Message) (loaded history.LoadResult) {
	mark, answers := "", 0
	for _, m := range messages {
		switch {
		case m.GetRole() == troupev1.Role_ROLE_USER:
			mark, answers = m.GetParts()[0].GetText(), 0
		case !m.GetPartial():
			answers++
			if answers == r.requests[mark].steps {
				loaded.Sequence = m.GetSequence()
				loaded.Hash = history.ExtendHash(loaded.Hash, mark, loaded.Sequence)
			}
		}
	}
	return loaded
}
