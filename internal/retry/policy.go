package retry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/troupe-dev/troupe/internal/jitter"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Policy says how often failed work is retried, and after which pauses (contract OC-25). It is for steps, tools
// and jobs of users. Calls to services of the mesh use Do, whose pauses are shorter. The zero Policy retries
// nothing.
type Policy struct {
	Name       string        // name that ParsePolicy accepts
	Retries    int           // retries after the first try; 3 means at most 4 tries
	FirstPause time.Duration // pause before the first retry
	Factor     float64       // growth of each pause (0 means equal pauses)
	MaxPause   time.Duration // upper bound of a pause (0 means none)
	Jitter     float64       // random variation of a pause; 0.1 means up to 10 % more or less
	// Modes lists the failure modes that are retried (empty means those that are Retryable). A terminal
	// mode is never retried, even if it is listed here.
	Modes []failure.Mode
}

// PolicyNames returns the names that ParsePolicy accepts.
func PolicyNames() []string { return []string{"exponential", "linear", "none"} }

// ParsePolicy returns the policy with the given name: exponential (1 s, doubled up to 60 s, 10 % jitter), linear
// (2 s each time) or none. The first two retry three times. Another name is an error of mode user_invalid_input.
// The caller may change the fields of the result.
func ParsePolicy(name string) (Policy, error) {
	switch name {
	case "exponential":
		return Policy{Name: name, Retries: 3, FirstPause: time.Second, Factor: 2, MaxPause: time.Minute, Jitter: 0.1}, nil
	case "linear":
		return Policy{Name: name, Retries: 3, FirstPause: 2 * time.Second}, nil
	case "none":
		return Policy{Name: name}, nil
	default:
		return Policy{}, failure.Newf(failure.UserInvalidInput, "retry.ParsePolicy", "there is no retry policy %q; use exponential, linear or none", name)
	}
}

// ShouldRetry reports whether to retry work that failed with err and has been retried the given number of times.
func (p Policy) ShouldRetry(err error, retries int) bool {
	mode := failure.ModeOf(err)
	switch {
	case err == nil || retries >= p.Retries || mode.Terminal():
		return false
	case len(p.Modes) > 0:
		return slices.Contains(p.Modes, mode)
	default:
		return mode.Retryable()
	}
}

// Pause returns how long to wait before the next retry of work that has been retried the given number of times.
func (p Policy) Pause(retries int) time.Duration {
	pause, longest := float64(p.FirstPause), float64(cmp.Or(p.MaxPause, longestPause))
	for i := 0; i < retries && p.Factor > 0 && pause < longest; i++ {
		pause *= p.Factor
	}
	base := time.Duration(min(pause, longest))
	spread := time.Duration(p.Jitter * float64(base))
	return min(base-spread+jitter.Below(2*spread+1), time.Duration(longest))
}

// longestPause is longer than every pause, but small enough that adding to it does not overflow.
const longestPause = time.Duration(1 << 61)

// Do calls op until it succeeds, fails with a mode that is not retried, has no retries left, or ctx ends during a
// pause. It returns the number of retries and the last error, with that number as its fact retry_count. op must be
// safe to repeat.
func (p Policy) Do(ctx context.Context, op func(context.Context) error) (retries int, err error) {
	for {
		if err = op(ctx); !p.ShouldRetry(err, retries) || Sleep(ctx, p.Pause(retries)) != nil {
			return retries, withRetryCount(err, retries)
		}
		retries++
	}
}

func withRetryCount(err error, retries int) error {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e.With("retry_count", strconv.Itoa(retries))
	}
	return err
}
