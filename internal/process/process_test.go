package process

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventLog records the starts and stops of the parts, in order.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (e *eventLog) add(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, line)
}

func (e *eventLog) part(name string) Part {
	return Part{Name: name, Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
		e.add("+" + name)
		ready()
		<-ctx.Done()
		e.add("-" + name)
		return ctx.Err()
	}}
}

func TestRun_StartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &eventLog{}
		require.NoError(t, Run(ctx, zap.NewNop(), func() { d.add("ready"); cancel() }, d.part("a"), d.part("b"), d.part("c")))
		require.Equal(t, []string{"+a", "+b", "+c", "ready", "-c", "-b", "-a"}, d.lines)
	})
}

func TestRun_AFailingPartStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &eventLog{}
		broken := Part{Name: "b", Grace: time.Second, Run: func(context.Context, func()) error { return errors.New("no disk") }}
		err := Run(t.Context(), zap.NewNop(), func() { d.add("ready") }, d.part("a"), broken, d.part("c"))
		require.EqualError(t, err, "b: no disk")
		require.Equal(t, []string{"+a", "-a"}, d.lines, "c never starts")
	})
}

func TestRun_AbandonsAPartThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := Part{Name: "stuck", Grace: time.Minute, Run: func(_ context.Context, ready func()) error {
			ready()
			<-release
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		d := &eventLog{}
		start := time.Now()
		err := Run(ctx, zap.NewNop(), cancel, d.part("a"), stuck)
		require.EqualError(t, err, "stuck: did not stop within 1m0s")
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, []string{"+a", "-a"}, d.lines)
		close(release)
	})
}

func TestRun_StopsCleanlyDuringStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		slow := Part{Name: "slow", Grace: time.Second, Run: func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }}
		go func() { time.Sleep(time.Second); cancel() }()
		require.NoError(t, Run(ctx, zap.NewNop(), func() { t.Error("ready") }, slow))
	})
}

func TestRun_NoticesAPartThatFailsWhileAnotherStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := Part{Name: "store", Grace: time.Second, Run: func(_ context.Context, ready func()) error {
			ready()
			time.Sleep(time.Second)
			return errors.New("killed")
		}}
		slow := Part{Name: "slow", Grace: time.Second, Run: func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }}
		require.EqualError(t, Run(t.Context(), zap.NewNop(), func() { t.Error("ready") }, failing, slow), "store: killed")
	})
}

func TestParse_DistinguishesUsageFromHelp(t *testing.T) {
	type config struct {
		Port int `help:"A port." default:"1"`
	}
	for _, c := range []struct {
		args     []string
		code     int
		ok       bool
		out, err string
	}{
		{[]string{"--port=7"}, ExitOK, true, "", ""},
		{[]string{"--help"}, ExitOK, false, "A port.", ""},
		{[]string{"--version"}, ExitOK, false, Version() + "\n", ""},
		{[]string{"--port=x"}, ExitUsage, false, "", "--port"},
		{[]string{"--prot=1"}, ExitUsage, false, "", `did you mean "--port"?`},
	} {
		var out, errs bytes.Buffer
		code, ok := parseFlags("p", "Does things.", &config{}, c.args, &out, &errs)
		require.Equal(t, c.code, code, "%v", c.args)
		require.Equal(t, c.ok, ok, "%v", c.args)
		require.Contains(t, out.String(), c.out)
		require.Contains(t, errs.String(), c.err)
	}
}
