// Package rate says how often a caller may call: one table with a class for each method of the
// mesh, and a token bucket for each caller and class, and for each tenant and class (guarantees
// S10). It bounds what one caller and one tenant can ask for; how much the mesh takes on in all is
// for admission.
package rate

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limit is how often something may happen: Rate times a second in the long run, and up to Burst
// times at once.
type Limit struct {
	Rate  float64 `yaml:"rate"` // 0: as often as anybody likes
	Burst int     `yaml:"burst"`
}

// Limiter counts the calls of everybody. Safe for concurrent use.
type Limiter struct {
	table   Table
	callers *buckets[caller]
	tenants *buckets[tenant]
	failed  *buckets[address]
	opened  *buckets[address]
	reset   *buckets[address]
}

// caller is whose calls are counted together.
type caller struct {
	class     Class
	principal identity.Principal
}

// tenant is whose callers are counted together, too: one who may make names for himself has no
// more for them.
type tenant struct {
	class Class
	name  string
}

// New returns a limiter with the table; classes that it lacks have no limit.
func New(table Table) *Limiter {
	return &Limiter{table, newBuckets[caller](), newBuckets[tenant](), newBuckets[address](), newBuckets[address](), newBuckets[address]()}
}

// Admit takes one call of the principal, from what it has itself and from what its tenant has.
// Modes: policy_rate_limit, which says when to call again and which of the two it was; what is not
// admitted does not count.
func (l *Limiter) Admit(method string, p identity.Principal) error {
	class, now := classOf(method), time.Now()
	if class == Mesh {
		switch _, inside := l.table[Mesh]; {
		case !inside: // nobody may call it at this port, and who tries is counted
			class = Operations
		case p.Role != identity.Worker:
			return nil // orchestrators call for everybody
		}
	}
	in := cmp.Or(p.Tenant, identity.DefaultTenant)
	own, wait := l.callers.reserve(caller{class, p}, l.table[class], now)
	if wait > 0 {
		return l.table[class].refusal(class, p.String()+" of tenant "+in, wait)
	}
	all := ofTenant(class)
	if _, wait = l.tenants.reserve(tenant{class, in}, l.table[all], now); wait > 0 {
		own.CancelAt(now)
		return l.table[all].refusal(all, "all callers of tenant "+in+" together", wait)
	}
	return nil
}

func (l Limit) refusal(class Class, who string, wait time.Duration) error {
	return failure.Newf(failure.PolicyRateLimit, "call",
		"%s may make %g calls of the class %s a second, and %d at once; call again in %s, or have an operator raise %s in the file of --rates",
		who, l.Rate, class, l.Burst, max(wait.Round(time.Millisecond), time.Millisecond), class).With("limit", string(class)).WithRetryAfter(wait)
}

func (l Limit) bucket() *rate.Limiter { return rate.NewLimiter(rate.Limit(l.Rate), l.Burst) }

// check says what is wrong with a limit.
func (l Limit) check() error {
	if !(l.Rate >= 0) || math.IsInf(l.Rate, 0) || l.Burst < 0 || l.Rate > 0 && l.Burst == 0 {
		return fmt.Errorf("rate %g with burst %d: a burst is at least 1, and a rate is above 0, or 0 for no limit", l.Rate, l.Burst)
	}
	return nil
}
