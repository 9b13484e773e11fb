package tool_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/tool"
)

func TestProgress_ReportsTheFraction(t *testing.T) {
	tool.Progress(t.Context(), 1, 2, "without a watcher")
	synctest.Test(t, func(t *testing.T) {
		var told []tool.Report
		ctx := tool.ContextWithReporter(t.Context(), func(r tool.Report) { told = append(told, r) })
		for _, r := range []struct {
			done, total float64
			message     string
		}{{1, 4, "a"}, {5, 4, ""}, {1, 0, "b"}, {-1, 4, "c"}, {0, 0, ""}, {math.NaN(), 1, ""}, {math.NaN(), 1, "d"}, {0, 3, ""}} {
			tool.Progress(ctx, r.done, r.total, r.message)
			time.Sleep(time.Second / tool.MaxProgress)
		}
		require.Empty(t, cmp.Diff([]tool.Report{
			{Message: "a", Fraction: new(0.25)}, {Fraction: new(1.0)}, {Message: "b"}, {Message: "c"}, {Message: "d"}, {Fraction: new(0.0)},
		}, told))
	})
}

// A call sends at most ten reports a second, however many it makes and from whichever goroutine.
func TestProgress_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]int{}
		call := func(name string) context.Context {
			return tool.ContextWithReporter(t.Context(), func(tool.Report) {
				mu.Lock()
				defer mu.Unlock()
				told[name]++
			})
		}
		one, two := call("one"), call("two")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 1000 {
					tool.Progress(one, 1, 2, "")
					time.Sleep(time.Millisecond)
				}
			})
		}
		tool.Progress(two, 1, 2, "")
		all.Wait()
		require.Equal(t, map[string]int{"one": tool.MaxProgress, "two": 1}, told, "each call for itself")
	})
}
