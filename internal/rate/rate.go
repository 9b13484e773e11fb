// Package rate limits how often a caller may call. A table assigns a limit to each class of methods. Each caller
// has a token bucket for each class, and so has each tenant (guarantee S10). The package bounds a single caller
// and a single tenant; the admission controller bounds the load of the whole mesh.
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

// Limit allows Rate events a second in the long run, and up to Burst at once.
type Limit struct {
	Rate  float64 `yaml:"rate"` // (0 means no limit)
	Burst int     `yaml:"burst"`
}

// Limiter counts calls and enforces the limits. It is safe for concurrent use.
type Limiter struct {
	table    Table
	callers  *buckets[callerKey]
	tenants  *buckets[tenantKey]
	failures *buckets[address]
	streams  *buckets[address]
	resets   *buckets[address]
}

// callerKey identifies the bucket of one caller in one class.
type callerKey struct {
	class     Class
	principal identity.Principal
}

// tenantKey identifies the bucket that all callers of a tenant share in one class. So a tenant gains nothing by
// creating many callers.
type tenantKey struct {
	class Class
	name  string
}

// New returns a limiter that enforces the table. Classes that are missing from the table have no limit.
func New(table Table) *Limiter {
	return &Limiter{table, newBuckets[callerKey](), newBuckets[tenantKey](), newBuckets[address](), newBuckets[address](), newBuckets[address]()}
}

// Admit counts one call against the limits of the principal and of its tenant. A rejected call is not counted. The
// error has the mode policy_rate_limit and says when to retry and which of the two limits was reached.
func (l *Limiter) Admit(method string, p identity.Principal) error {
	class, now := classForMethod(method), time.Now()
	if class == Mesh {
		switch _, inside := l.table[Mesh]; {
		case !inside: // not served at this port; attempts count as operations
			class = Operations
		case p.Role != identity.Worker:
			return nil // orchestrators call on behalf of all callers
		}
	}
	in := cmp.Or(p.Tenant, identity.DefaultTenant)
	own, wait := l.callers.reserve(callerKey{class, p}, l.table[class], now)
	if wait > 0 {
		return l.table[class].exceededError(class, p.String()+" of tenant "+in, wait)
	}
	all := tenantClass(class)
	if _, wait = l.tenants.reserve(tenantKey{class, in}, l.table[all], now); wait > 0 {
		own.CancelAt(now)
		return l.table[all].exceededError(all, "all callers of tenant "+in+" together", wait)
	}
	return nil
}

func (l Limit) exceededError(class Class, who string, wait time.Duration) error {
	return failure.Newf(failure.PolicyRateLimit, "call",
		"%s may make %g calls of the class %s a second, and %d at once; call again in %s, or have an operator raise %s in the file of --rates",
		who, l.Rate, class, l.Burst, max(wait.Round(time.Millisecond), time.Millisecond), class).With("limit", string(class)).WithRetryAfter(wait)
}

func (l Limit) newBucket() *rate.Limiter { return rate.NewLimiter(rate.Limit(l.Rate), l.Burst) }

// validate returns an error for an invalid limit.
func (l Limit) validate() error {
	if !(l.Rate >= 0) || math.IsInf(l.Rate, 0) || l.Burst < 0 || l.Rate > 0 && l.Burst == 0 {
		return fmt.Errorf("rate %g with burst %d: a burst is at least 1, and a rate is above 0, or 0 for no limit", l.Rate, l.Burst)
	}
	return nil
}
