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
type modelAction struct {
	wait  time.Duration
	delta llm.Delta
	err   error
}

// actionModel is a model that plays a list of actions for each request, in order.
type actionModel struct {
	name           string
	requests       [][]modelAction
	requestCount   atomic.Int32
	abandonedCount atomic.Int32 // number of requests that the caller gave up
}

func (a *actionModel) Name() string { return a.name }

func (a *actionModel) Generate(ctx context.Context, _ llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		for _, do := range a.requests[a.requestCount.Add(1)-1] {
			timer := time.NewTimer(do.wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				a.abandonedCount.Add(1)
				yield(llm.Delta{}, ctx.Err())
				return
			}
			if !yield(do.delta, do.err) {
				a.abandonedCount.Add(1)
				return
			}
		}
	}
}

func sayText(text string) modelAction { return modelAction{delta: llm.Delta{Text: text}} }

func useTokens(tokens int64) modelAction {
	return modelAction{delta: llm.Delta{Usage: execution.Usage{InputTokens: tokens}}}
}

func delayed(d time.Duration, a modelAction) modelAction { a.wait = d; return a }

// failWith returns an action that yields an error in the form in which adapters yield it.
func failWith(kind llm.Kind, retryAfter time.Duration) modelAction {
	e := &llm.Error{Provider: "test", Kind: kind, RetryAfter: retryAfter}
	return modelAction{err: failure.New(failure.ResourceAPI, "llm.Generate", "no").Because(e)}
}

// modelAnswer is the whole answer of a model.
type modelAnswer struct {
	text  string
	model string
	usage execution.Usage
	err   error
}

func ask(ctx context.Context, t *testing.T, m llm.Model) (all modelAnswer) {
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
			require.Empty(t, all.model, "told twice")
			all.model = d.Model
		}
	}
	return all
}
