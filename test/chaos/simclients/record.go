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

// record stores what the clients of a Clients sent and which answers they received. It is safe for concurrent
// use.
type record struct {
	sessions *history.Log // of appends and loads, for model M1
	registry *history.Log // of requests and results, for model M2

	mu           sync.Mutex
	requests     map[string]request // by mark
	acknowledged map[string][]verify.Acknowledged
	failed       map[string]bool // by mark
	found        []violation.Violation
	counts       Counts
}

// request is a request that was sent.
type request struct {
	steps int
	sent  int64 // before it was sent first
}

func newRecord(clock *history.Clock) *record {
	return &record{
		sessions: history.NewLog(clock), registry: history.NewLog(clock),
		requests: map[string]request{}, acknowledged: map[string][]verify.Acknowledged{}, failed: map[string]bool{},
	}
}

// addRequest records a request that is about to be sent.
func (r *record) addRequest(mark string, steps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[mark] = request{steps, r.sessions.Now()}
}

// stepsOf returns how many steps the turn of a request has.
func (r *record) stepsOf(mark string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests[mark].steps
}

// addAcknowledged records the answers of a turn. Only the first of the callers of a request counts. The
// sequence is the one of the last message, and at the time of the result.
func (r *record) addAcknowledged(session, mark string, answers []string, last, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.acknowledged[session], func(a verify.Acknowledged) bool { return a.Mark == mark }) {
		return
	}
	r.counts.Turns++
	r.acknowledged[session] = append(r.acknowledged[session], verify.Acknowledged{Mark: mark, Answers: answers})
	r.sessions.AddUntil(r.requests[mark].sent, at, history.Append{Session: session, Key: mark}, history.Appended{Sequence: last})
}

// addFailure records a turn that failed.
func (r *record) addFailure(mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[mark] = true
}

func (r *record) countBurst() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Bursts++
}

func (r *record) countLeave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Leaves++
}

func (r *record) addViolation(check, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, violation.Newf(check, format, args...))
}

func (r *record) violations() []violation.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

func (r *record) snapshot() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	counts.Failed = len(r.failed)
	return counts
}

func (r *record) requestedMarks() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]bool{}
	for mark := range r.requests {
		all[mark] = true
	}
	return all
}

func (r *record) committedSteps() (all []verify.Committed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, turns := range r.acknowledged {
		for _, turn := range turns {
			for i, text := range turn.Answers {
				all = append(all, verify.Committed{Mark: turn.Mark, Step: i + 1, Text: text})
			}
		}
	}
	return all
}

func (r *record) acknowledgedSessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.acknowledged))
}

// checkHistories checks models M1 and M2.
func (r *record) checkHistories() []violation.Violation {
	return append(history.CheckSessionLog(r.sessions), history.CheckTurnRegistry(r.registry)...)
}

// checkSession compares the messages of a session with the turns that were acknowledged and that failed.
func (r *record) checkSession(session string, messages []*troupev1.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, verify.CheckHistory(session, messages, r.acknowledged[session])...)
	for mark := range r.failed {
		if answers := answersTo(mark, messages); len(answers) == r.requests[mark].steps {
			r.found = append(r.found, violation.Newf(CheckCompletion, "%s is reported as failed, and its session has %d answers", mark, len(answers)))
		}
	}
}

// addLoad records a read of a whole session that began at the given time.
func (r *record) addLoad(began int64, session string, messages []*troupev1.Message) {
	r.mu.Lock()
	loaded := r.toLoaded(messages)
	r.mu.Unlock()
	r.sessions.Add(began, history.Load{Session: session}, loaded)
}

// toLoaded returns a session as model M1 sees it: its complete turns, and where each of them ends. Messages
// of open turns are left out.
func (r *record) toLoaded(messages []*troupev1.Message) (loaded history.Loaded) {
	mark, answers := "", 0
	for _, m := range messages {
		switch {
		case m.GetRole() == troupev1.Role_ROLE_USER:
			mark, answers = m.GetParts()[0].GetText(), 0
		case !m.GetPartial():
			answers++
			if answers == r.requests[mark].steps {
				loaded.Sequence = m.GetSequence()
				loaded.Chain = history.Chain(loaded.Chain, mark, loaded.Sequence)
			}
		}
	}
	return loaded
}
