package budget

import (
	"fmt"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Ledger tracks how much of its budget one attempt of a step has used and reserved. Callers reserve amounts before
// a call and settle them afterwards with the real usage. The limits are never exceeded as long as no call uses
// more than it reserved. A Ledger is safe for concurrent use. A nil Ledger has no limits and counts nothing.
type Ledger struct {
	limits Limits
	depth  int

	mu        sync.Mutex
	used      Amounts
	reserved  Amounts
	rejection error
	warned    map[Kind]bool
}

// New returns the ledger of a turn at a nesting depth. Depth 0 is a turn that no other turn started.
func New(limits Limits, level int) *Ledger {
	return &Ledger{limits: limits, depth: level, warned: map[Kind]bool{}}
}

// Reservation is an amount reserved for a call.
type Reservation struct {
	// Exceeded lists the kinds whose limit this reservation exceeds under the policy Warn. A ledger reports each
	// kind once.
	Exceeded []Kind

	ledger  *Ledger
	amounts Amounts
}

// Reserve reserves amounts for a call. The caller must settle the reservation. Mode: policy_budget with the facts
// budget, limit, used and asked if a kind would exceed its limit. In that case nothing is reserved. The ledger
// then rejects all later reservations, so that every user of the ledger stops.
func (l *Ledger) Reserve(asked Amounts) (Reservation, error) {
	if l == nil {
		return Reservation{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rejection != nil {
		return Reservation{}, l.rejection
	}
	taken := l.used.Add(l.reserved)
	left := l.limits.Subtract(taken)
	r := Reservation{ledger: l, amounts: asked}
	if asked != asked.Min(left) {
		var err error
		if r.Exceeded, err = l.exceededKinds(asked, left, taken); err != nil {
			l.rejection = err
			return Reservation{}, err
		}
	}
	l.reserved = l.reserved.Add(asked)
	return r, nil
}

// exceededKinds returns the kinds whose requested amount exceeds what is left, and marks them as reported. It
// omits kinds that were reported before. Under the policy Block, and always for FanOut, it returns an error
// instead. The caller holds the lock.
func (l *Ledger) exceededKinds(asked, left, taken Amounts) (first []Kind, err error) {
	for _, k := range Kinds() {
		switch {
		case asked.Get(k) <= left.Get(k):
		case l.limits.Policy != Warn || k == FanOut:
			return nil, NewExceededError(k, l.limits.Get(k), taken.Get(k), asked.Get(k))
		case !l.warned[k]:
			l.warned[k] = true
			first = append(first, k)
		}
	}
	return first, nil
}

// Settle replaces the reserved amounts by the used amounts. Call it once for each reservation.
func (r Reservation) Settle(used Amounts) {
	if r.ledger == nil {
		return
	}
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.ledger.reserved = r.ledger.reserved.Subtract(r.amounts)
	r.ledger.used = r.ledger.used.Add(used)
}

// Child reserves budget for a remote turn that is one of several siblings. Its share is an equal part of the
// unused budget, or what is left of it. Child returns the limits of the remote turn. Under the policy Warn only
// its depth is limited. Modes: policy_budget if the turn would nest too deep, if there are too many remote turns,
// or if nothing is left.
func (l *Ledger) Child(beside int) (Limits, Reservation, error) {
	open := Unbounded()
	if l == nil {
		return open, Reservation{}, nil
	}
	open.Depth, open.Policy = l.limits.Depth, l.limits.Policy
	if l.depth >= l.limits.Depth {
		return open, Reservation{}, l.reject(NewExceededError(Depth, int64(l.limits.Depth), int64(l.depth), 1))
	}
	share := Amounts{FanOut: 1}
	if l.limits.Policy != Warn {
		share = l.share(beside)
	}
	r, err := l.Reserve(share)
	if err != nil || l.limits.Policy == Warn {
		return open, r, err
	}
	// A limit of 0 rejects the first call of that kind, so the share contains at least 1 of every kind that a turn
	// needs.
	open.Amounts = share.combine(l.limits.Amounts, func(share, limit int64) int64 {
		if limit == Unlimited {
			return limit
		}
		return share
	})
	open.FanOut = Unlimited // the remote turn counts its own remote turns
	return open, r, nil
}

// share returns the amounts that one of n siblings gets.
func (l *Ledger) share(n int) Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, unused := l.limits.Subtract(l.used.Add(l.reserved)), l.limits.Subtract(l.used)
	share := left.combine(unused, func(left, unused int64) int64 {
		if left == Unlimited {
			return 0 // unlimited amounts need no reservation
		}
		return min(left, unused/int64(max(1, n)))
	})
	least := Amounts{Iterations: 1, ModelCalls: 1, Tokens: 1, Cost: 1}
	share = share.Max(least)
	share.FanOut = 1
	return share
}

// reject stores the first rejection and returns it.
func (l *Ledger) reject(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rejection == nil {
		l.rejection = err
	}
	return l.rejection
}

// Depth returns the nesting depth of the turn (0 for a nil Ledger).
func (l *Ledger) Depth() int {
	if l == nil {
		return 0
	}
	return l.depth
}

// Used returns the settled amounts.
func (l *Ledger) Used() Amounts {
	if l == nil {
		return Amounts{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// Left returns the amounts that are neither settled nor reserved. All amounts of a nil Ledger are Unlimited.
func (l *Ledger) Left() Amounts {
	if l == nil {
		return Unbounded().Amounts
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits.Subtract(l.used.Add(l.reserved))
}

// Rejection returns the first rejection, after which the ledger rejects everything (nil if there was none).
func (l *Ledger) Rejection() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rejection
}

// NewExceededError returns the error for a reservation that would exceed a limit. It is the BudgetError of OC-29.
func NewExceededError(k Kind, limit, used, asked int64) error {
	message := fmt.Sprintf("limits.%s: %s of %s are used, and %s more would go beyond; raise limits.%s of the workflow, or ask for a smaller thing",
		k, k.FormatAmount(used), k.FormatAmount(limit), k.FormatAmount(asked), k)
	if k == Depth {
		message = fmt.Sprintf("limits.depth: a remote turn would lie %d deep, and %d is allowed; "+
			"raise limits.depth of the workflow, or nest fewer agents",
			used+asked, limit)
	}
	return failure.New(failure.PolicyBudget, "budget.Reserve", message).
		With("budget", string(k)).With("limit", k.FormatAmount(limit)).With("used", k.FormatAmount(used)).With("asked", k.FormatAmount(asked))
}
