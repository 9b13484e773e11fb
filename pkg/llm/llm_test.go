package llm_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modelAction is one action of an actionModel: it waits, and then yields a delta or an error.
type act struct {
	wait  time.Duration
	delta llm.Delta
	err   error
}

// actionModel is a model that plays a list of actions for each request, in order.
type actor struct {
	name     string
	requests [][]act
	asked    atomic.Int32
	left     atomic.Int32 // number of requests that the caller gave up
}

func (a *actor) Name() string { return a.name }

func (a *actor) Generate(ctx context.Context, _ llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		for _, do := range a.requests[a.asked.Add(1)-1] {
			timer := time.NewTimer(do.wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				a.left.Add(1)
				yield(llm.Delta{}, ctx.Err())
				return
			}
			if !yield(do.delta, do.err) {
				a.left.Add(1)
				return
			}
		}
	}
}

func say(text string) act { return act{delta: llm.Delta{Text: text}} }

func spend(tokens int64) act {
	return act{delta: llm.Delta{Usage: execution.Usage{InputTokens: tokens}}}
}

func after(d time.Duration, a act) act { a.wait = d; return a }

// failWith returns an action that yields an error in the form in which adapters yield it.
func fail(kind llm.Kind, retryAfter time.Duration) act {
	e := &llm.Error{Provider: "test", Kind: kind, RetryAfter: retryAfter}
	return act{err: failure.New(failure.ResourceAPI, "llm.Generate", "no").Because(e)}
}

// modelAnswer is the whole answer of a model.
type said struct {
	text  string
	by    string
	usage execution.Usage
	err   error
}

func ask(ctx context.Context, t *testing.T, m llm.Model) (all said) {
	t.Helper()
	for d, err := range m.Generate(ctx, llm.Request{}) {
		require.NoError(t, all.err, "the error was not the last item")
		if err != nil {
			all.err = err
			continue
		}
		all.text += d.Text
		all.usage = all.usage.Add(d.Usage)
		if d.Model != "" {
			require.Empty(t, all.by, "told twice")
			all.by = d.Model
		}
	}
	return all
}
