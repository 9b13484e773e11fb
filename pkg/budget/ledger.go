package budget

import (
	"fmt"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Ledger is what one who works for a trace may use, and has used. What is about to be used is
// reserved before, and settled behind it with what it really was: as long as nothing uses more
// than it reserved, no more than the limits is ever used. Safe for concurrent use. A nil Ledger
// bounds nothing and counts nothing.
type Ledger struct {
	limits Limits
	level  int

	mu       sync.Mutex
	used     Amounts
	reserved Amounts
	refused  error
	warned   map[Kind]bool
}

// New returns a ledger of a turn that lies at a level: 0 for one that nobody's agent asked for.
func New(limits Limits, level int) *Ledger {
	return &Ledger{limits: limits, level: level, warned: map[Kind]bool{}}
}

// Reservation is what is about to be used.
type Reservation struct {
	// Beyond are the kinds of which the policy Warn lets more be used than the limit, each told
	// once by a ledger.
	Beyond []Kind

	ledger *Ledger
	held   Amounts
}

// Reserve takes amounts for what is about to happen; the caller settles. Mode: policy_budget, with
// the facts budget, limit, used and asked, when a kind would go beyond its limit. Then nothing is
// taken, and nothing is granted any more: a refusal ends all that shares the ledger.
func (l *Ledger) Reserve(asked Amounts) (Reservation, error) {
	if l == nil {
		return Reservation{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil {
		return Reservation{}, l.refused
	}
	taken := l.used.Add(l.reserved)
	left := l.limits.Less(taken)
	r := Reservation{ledger: l, held: asked}
	if asked != asked.Least(left) {
		var err error
		if r.Beyond, err = l.beyond(asked, left, taken); err != nil {
			l.refused = err
			return Reservation{}, err
		}
	}
	l.reserved = l.reserved.Add(asked)
	return r, nil
}

// beyond is called with the lock held when more is asked for than is left.
func (l *Ledger) beyond(asked, left, taken Amounts) (first []Kind, err error) {
	for _, k := range Kinds() {
		switch {
		case asked.Of(k) <= left.Of(k):
		case l.limits.Policy != Warn || k == FanOut:
			return nil, Refuse(k, l.limits.Of(k), taken.Of(k), asked.Of(k))
		case !l.warned[k]:
			l.warned[k] = true
			first = append(first, k)
		}
	}
	return first, nil
}

// Settle puts what was really used in the place of what was reserved. It is called once.
func (r Reservation) Settle(used Amounts) {
	if r.ledger == nil {
		return
	}
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.ledger.reserved = r.ledger.reserved.Less(r.held)
	r.ledger.used = r.ledger.used.Add(used)
}

// Child reserves what a remote turn may use that is one of so many beside each other: its share of
// what is not used, as far as it is left, while it runs. Limits are those of the remote turn; with
// the policy Warn they bound its depth alone. Modes: policy_budget when it would lie too deep,
// there were too many, or nothing is left for it to work with.
func (l *Ledger) Child(beside int) (Limits, Reservation, error) {
	open := Open()
	if l == nil {
		return open, Reservation{}, nil
	}
	open.Depth, open.Policy = l.limits.Depth, l.limits.Policy
	if l.level >= l.limits.Depth {
		return open, Reservation{}, l.refuse(Refuse(Depth, int64(l.limits.Depth), int64(l.level), 1))
	}
	share := Amounts{FanOut: 1}
	if l.limits.Policy != Warn {
		share = l.share(beside)
	}
	r, err := l.Reserve(share)
	if err != nil || l.limits.Policy == Warn {
		return open, r, err
	}
	// What is 0 here refuses the first call of that kind there; of what every turn needs 1 was asked.
	open.Amounts = share.each(l.limits.Amounts, func(share, limit int64) int64 {
		if limit == Unlimited {
			return limit
		}
		return share
	})
	open.FanOut = Unlimited // those of a remote turn are its own
	return open, r, nil
}

// share is what one of n gets.
func (l *Ledger) share(n int) Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, unused := l.limits.Less(l.used.Add(l.reserved)), l.limits.Less(l.used)
	share := left.each(unused, func(left, unused int64) int64 {
		if left == Unlimited {
			return 0 // nothing of it is reserved
		}
		return min(left, unused/int64(max(1, n)))
	})
	least := Amounts{Iterations: 1, ModelCalls: 1, Tokens: 1, Cost: 1}
	share = share.Most(least)
	share.FanOut = 1
	return share
}

// refuse notes a refusal, unless there was one before.
func (l *Ledger) refuse(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = err
	}
	return l.refused
}

// Level is how deep the turn lies; 0 also for a nil Ledger.
func (l *Ledger) Level() int {
	if l == nil {
		return 0
	}
	return l.level
}

// Used is what was settled.
func (l *Ledger) Used() Amounts {
	if l == nil {
		return Amounts{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// Refusal is why nothing is granted any more; nil while something is.
func (l *Ledger) Refusal() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// Refuse is the refusal of what would go beyond a limit: the BudgetError of OC-29.
func Refuse(k Kind, limit, used, asked int64) error {
	message := fmt.Sprintf("limits.%s: %s of %s are used, and %s more would go beyond; raise limits.%s of the workflow, or ask for a smaller thing",
		k, k.Text(used), k.Text(limit), k.Text(asked), k)
	if k == Depth {
		message = fmt.Sprintf("limits.depth: a remote turn would lie %d deep, and %d is allowed; raise limits.depth of the workflow, or ask fewer agents inside of each other",
			used+asked, limit)
	}
	return failure.New(failure.PolicyBudget, "budget.Reserve", message).
		With("budget", string(k)).With("limit", k.Text(limit)).With("used", k.Text(used)).With("asked", k.Text(asked))
}
