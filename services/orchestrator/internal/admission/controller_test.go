package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newGate is one for so many turns at once, and as many who wait, for 5 s.
func newGate(t *testing.T, turns int, change ...func(*Config)) *Controller {
	t.Helper()
	cfg := Config{Turns: func() int { return turns }, QueueTime: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg)
	require.NoError(t, err)
	return g
}

// asked is a caller of Enter.
type asked struct {
	tenant string
	leave  context.CancelFunc
	pass   *Permit
	err    error
	after  time.Duration // that it waited
	done   bool
}

// ask has a caller enter, and returns once it waits or is through. For the bubble of a test.
func ask(t *testing.T, g *Controller, tenant string, until time.Time) *asked {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	a := &asked{tenant: tenant, leave: leave}
	began := time.Now()
	go func() {
		defer leave()
		a.pass, a.err = g.Admit(ctx, tenant, until)
		a.after, a.done = time.Since(began), true
	}()
	synctest.Wait()
	return a
}

// entered are the tenants of those that were let in.
func entered(all []*asked) (names []string) {
	for _, a := range all {
		if a.pass != nil {
			names = append(names, a.tenant)
		}
	}
	return names
}

func (g *Controller) empty() bool { return g.turns == 0 && g.waiting == 0 && len(g.tenants) == 0 }

func TestGate_LetsInOneForOneThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, 2)
		var all []*asked
		for range 5 {
			all = append(all, ask(t, g, "a", time.Time{}))
		}
		require.Len(t, entered(all), 2)
		refused := all[4]
		require.True(t, refused.done, "the queue is full, and that is said at once")
		require.Zero(t, refused.after)
		require.Equal(t, failure.Overloaded, failure.ModeOf(refused.err), "%v", refused.err)
		require.ErrorContains(t, refused.err, "no more than 2 turns may run here at once, and as many callers wait as may. Send the same request again in 1s")
		after, ok := failure.RetryAfter(refused.err)
		require.True(t, ok)
		require.Equal(t, time.Second, after)

		time.Sleep(time.Second)
		all[0].pass.Release(true)
		all[0].pass.Release(true)
		synctest.Wait()
		require.NotNil(t, all[2].pass, "first come, first served")
		require.Equal(t, time.Second, all[2].after)
		require.Nil(t, all[3].pass)
		forced := g.ForceAdmit("a")
		all[1].pass.Release(true)
		synctest.Wait()
		require.Nil(t, all[3].pass, "who is let in whatever there is counts")
		forced.Release(true)
		synctest.Wait()
		require.NotNil(t, all[3].pass)
		all[2].pass.Release(false)
		all[3].pass.Release(false)
		require.True(t, g.empty())
	})
}

func TestGate_RefusesWhoWouldWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, 1, func(c *Config) { c.Queue = 100 })
		first := ask(t, g, "a", time.Time{})
		time.Sleep(2 * time.Second)
		first.pass.Release(true) // turns take 2 s

		first = ask(t, g, "a", time.Time{})
		hasty := ask(t, g, "a", time.Now().Add(5*time.Second))
		require.ErrorContains(t, hasty.err, "it would take longer until one ends than the 1s that this caller may wait")
		second, third := ask(t, g, "a", time.Time{}), ask(t, g, "a", time.Time{})
		fourth := ask(t, g, "a", time.Time{})
		require.Zero(t, fourth.after)
		require.ErrorContains(t, fourth.err, "than the 5s that this caller may wait. Send the same request again in 6s")

		time.Sleep(5 * time.Second) // the first takes longer than was expected
		synctest.Wait()
		require.Equal(t, 5*time.Second, third.after)
		require.ErrorContains(t, third.err, "none ended within the 5s")
		require.Equal(t, failure.Overloaded, failure.ModeOf(second.err))
		first.pass.Release(true)
		require.True(t, g.empty())
	})
}

func TestGate_WhoLeavesLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, 1)
		first, second := ask(t, g, "a", time.Time{}), ask(t, g, "b", time.Time{})
		second.leave()
		synctest.Wait()
		require.ErrorIs(t, second.err, context.Canceled)
		third := ask(t, g, "b", time.Time{})
		first.pass.Release(true)
		synctest.Wait()
		require.NotNil(t, third.pass, "its place is another's")

		// In the same moment: it may have been let in, and does not know it.
		for range 100 {
			next := ask(t, g, "a", time.Time{})
			next.leave()
			third.pass.Release(true)
			synctest.Wait()
			if next.pass != nil {
				next.pass.Release(false)
			}
			require.True(t, g.empty())
			third = ask(t, g, "a", time.Time{})
		}
		third.pass.Release(true)
	})
}

func TestGate_CloseRefusesWhoWaitsAndWhoComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, 1)
		first, second := ask(t, g, "a", time.Time{}), ask(t, g, "a", time.Time{})
		stopping := errors.New("stopping")
		g.Close(stopping)
		synctest.Wait()
		require.ErrorIs(t, second.err, stopping)
		first.pass.Release(true)
		require.ErrorIs(t, ask(t, g, "a", time.Time{}).err, stopping)
		g.ForceAdmit("a").Release(true)
		require.True(t, g.empty())
	})
}

func TestGate_FollowsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := 0
		g := newGate(t, 0, func(c *Config) { c.Turns, c.Queue = func() int { return limit }, 10 })
		var all []*asked
		for range 4 {
			all = append(all, ask(t, g, "a", time.Time{}))
		}
		require.Len(t, entered(all), 1, "never none")
		limit = 3
		g.AdmitWaiting()
		synctest.Wait()
		require.Len(t, entered(all), 3)
		limit = 1
		all[0].pass.Release(true)
		all[1].pass.Release(true)
		synctest.Wait()
		require.Len(t, entered(all), 3)
		all[2].pass.Release(true)
		synctest.Wait()
		require.Len(t, entered(all), 4)
		all[3].pass.Release(true)
	})
}

// A tenant may have all places while it is alone. As soon as another comes, places that become
// free are the other's until both have the same.
func TestGate_SharesAmongTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, 4)
		var all []*asked
		for range 8 {
			all = append(all, ask(t, g, "busy", time.Time{}))
		}
		require.Len(t, entered(all), 4)
		for range 3 { // each makes room for itself in a queue that is full
			all = append(all, ask(t, g, "other", time.Time{}))
		}
		refused := slices.DeleteFunc(slices.Clone(all), func(a *asked) bool { return a.err == nil })
		require.Len(t, refused, 3)
		for n, message := range []string{
			"no more than 2 turns of one tenant may run here at once, and as many callers wait as may",
			"no more than 2 turns of one tenant may run here at once, and as many callers wait as may",
			"no more than 4 turns may run here at once, and as many callers wait as may", // two of each wait, and this is one more
		} {
			require.ErrorContains(t, refused[n].err, message)
		}
		require.Equal(t, []string{"busy", "busy", "other"}, []string{refused[0].tenant, refused[1].tenant, refused[2].tenant})

		for n, want := range [][]string{{"other"}, {"other", "other"}, {"busy", "other", "other"}, {"busy", "busy", "other", "other"}} {
			all[n].pass.Release(true)
			synctest.Wait()
			require.Equal(t, want, entered(all[4:]), "after %d have ended", n+1)
		}
		for _, a := range all[4:] {
			if a.pass != nil {
				a.pass.Release(true)
			}
		}
		require.True(t, g.empty())
	})
}

// A tenant that has its fair share is not refused, and waits for one turn at most of those
// that run, whatever another does.
func TestGate_ATenantWithItsFairShareIsNotRefused(t *testing.T) {
	const places, took = 8, time.Second
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, places)
		var all []*asked
		arrive := func(tenant string) {
			ctx, leave := context.WithCancel(t.Context())
			a := &asked{tenant: tenant}
			all = append(all, a)
			began := time.Now()
			go func() {
				defer leave()
				if a.pass, a.err = g.Admit(ctx, tenant, time.Time{}); a.pass != nil {
					a.after = time.Since(began)
					time.Sleep(took)
					a.pass.Release(true)
				}
			}()
		}
		const seconds = 30
		for tick := range seconds * 40 { // 40 a second of one, 4 a second of the other; together they may have 8
			arrive("greedy")
			if tick%10 == 0 && tick >= 40*5 {
				arrive("modest")
			}
			time.Sleep(25 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		ended := map[string]int{}
		for _, a := range all {
			if a.err == nil {
				ended[a.tenant]++
			}
			if a.tenant == "modest" {
				require.NoError(t, a.err)
				require.LessOrEqual(t, a.after, took)
			}
		}
		require.Equal(t, (seconds-5)*4, ended["modest"])
		require.GreaterOrEqual(t, ended["greedy"], places*5+places/2*(seconds-5))
		require.True(t, g.empty())
	})
}

// A caller that makes up tenants cannot exhaust the memory of the metrics backend.
func TestCount_NamesAFewTenants(t *testing.T) {
	g := newGate(t, 1)
	for n := range 2 * maxTenantLabels {
		g.metrics.admitted(fmt.Sprint(n), atOnce, 0)
	}
	require.Equal(t, "0", g.metrics.label("0").Value.AsString())
	require.Equal(t, otherTenants, g.metrics.label(fmt.Sprint(maxTenantLabels)).Value.AsString())
	require.Len(t, g.metrics.named, maxTenantLabels)
}

func BenchmarkGate(b *testing.B) {
	for _, tenants := range []int{1, 100} {
		b.Run(fmt.Sprint(tenants), func(b *testing.B) {
			g, err := New(Config{Turns: func() int { return 1000 }})
			require.NoError(b, err)
			for n := range tenants {
				defer g.ForceAdmit(fmt.Sprint(n)).Release(false)
			}
			b.ReportAllocs()
			for b.Loop() {
				pass, _ := g.TryAdmit("a")
				pass.Release(true)
			}
		})
	}
}
