package failure

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Policy says how often something is tried again after it failed, and after which pauses
// (contract OC-25). It is for work: a step, a tool, a job. Calls to the mesh's own services
// use Retry, which is faster. The zero Policy tries nothing again.
type Policy struct {
	Name    string        // as ParsePolicy knows it
	Retries int           // after the first try: 3 means 4 executions at most
	First   time.Duration // pause before the first retry
	Factor  float64       // by which each pause is longer than the one before; 0: all are alike
	Longest time.Duration // that a pause grows to; 0: no bound
	Jitter  float64       // part by which a pause is longer or shorter, at random
	// Modes are those that are tried again; none: those that are Retryable. A terminal one
	// never is, whatever is listed here.
	Modes []Mode
}

// Policies are the names that ParsePolicy knows.
func Policies() []string { return []string{"exponential", "linear", "none"} }

// ParsePolicy returns the policy of a name: exponential (1 s, doubled up to 60 s, 10 % more or
// less), linear (2 s each time) or none. The first two try three times again. Another name gets
// user_invalid_input. Fields of what it returns may be changed.
func ParsePolicy(name string) (Policy, error) {
	switch name {
	case "exponential":
		return Policy{Name: name, Retries: 3, First: time.Second, Factor: 2, Longest: time.Minute, Jitter: 0.1}, nil
	case "linear":
		return Policy{Name: name, Retries: 3, First: 2 * time.Second}, nil
	case "none":
		return Policy{Name: name}, nil
	default:
		return Policy{}, Newf(UserInvalidInput, "failure.ParsePolicy", "there is no retry policy %q; use exponential, linear or none", name)
	}
}

// Again reports whether what failed with err is tried again, after that many retries before.
func (p Policy) Again(err error, retries int) bool {
	mode := ModeOf(err)
	switch {
	case err == nil || retries >= p.Retries || mode.Terminal():
		return false
	case len(p.Modes) > 0:
		return slices.Contains(p.Modes, mode)
	default:
		return mode.Retryable()
	}
}

// Pause is how long to wait after that many retries before the next one.
func (p Policy) Pause(retries int) time.Duration {
	pause, longest := float64(p.First), float64(cmp.Or(p.Longest, forever))
	for i := 0; i < retries && p.Factor > 0 && pause < longest; i++ {
		pause *= p.Factor
	}
	plain := time.Duration(min(pause, longest))
	spread := time.Duration(p.Jitter * float64(plain))
	return min(plain-spread+rand.N(2*spread+1), time.Duration(longest)) //nolint:gosec // it spreads load, and hides nothing
}

// forever is what nothing grows to, and still can be added to.
const forever = time.Duration(1 << 61)

// Do calls op until it succeeds, fails in a way that is not tried again, has no retries left, or
// ctx ends in a pause. It returns how many retries it took, and the last error, which has that
// number as its fact retry_count. op must be safe to repeat.
func (p Policy) Do(ctx context.Context, op func(context.Context) error) (retries int, err error) {
	for {
		if err = op(ctx); !p.Again(err, retries) || Pause(ctx, p.Pause(retries)) != nil {
			return retries, counted(err, retries)
		}
		retries++
	}
}

// counted is the error with the number of retries behind it.
func counted(err error, retries int) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.With("retry_count", strconv.Itoa(retries))
	}
	return err
}
