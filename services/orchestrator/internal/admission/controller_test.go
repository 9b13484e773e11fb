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

// newController returns a controller that admits the given number of turns. Its queue has the same length, and its
// queue time is 5 s.
func newController(t *testing.T, turns int, change ...func(*Config)) *Controller {
	t.Helper()
	cfg := Config{MaxTurns: func() int { return turns }, MaxQueueTime: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg)
	require.NoError(t, err)
	return g
}

// pendingAdmit is a call of Admit that runs in its own goroutine.
type pendingAdmit struct {
	tenant string
	cancel context.CancelFunc
	permit *Permit
	err    error
	waited time.Duration // how long it waited
	done   bool
}

// startAdmit calls Admit in a goroutine. It returns once the caller waits, was admitted or was rejected. It works
// only in a synctest bubble.
func startAdmit(t *testing.T, g *Controller, tenant string, until time.Time) *pendingAdmit {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	a := &pendingAdmit{tenant: tenant, cancel: leave}
	began := time.Now()
	go func() {
		defer leave()
		a.permit, a.err = g.Admit(ctx, tenant, until)
		a.waited, a.done = time.Since(began), true
	}()
	synctest.Wait()
	return a
}

// admittedTenants returns the tenant of each admitted caller.
func admittedTenants(all []*pendingAdmit) (names []string) {
	for _, a := range all {
		if a.permit != nil {
			names = append(names, a.tenant)
		}
	}
	return names
}

func (g *Controller) isEmpty() bool {
	return g.runningTurns == 0 && g.waitingCallers == 0 && len(g.tenants) == 0
}

func TestController_AdmitsOneCallerPerEndedTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newController(t, 2)
		var all []*pendingAdmit
		for range 5 {
			all = append(all, startAdmit(t, g, "a", time.Time{}))
		}
		require.Len(t, admittedTenants(all), 2)
		rejected := all[4]
		require.True(t, rejected.done, "the queue is full, so it is rejected at once")
		require.Zero(t, rejected.waited)
		require.Equal(t, failure.Overloaded, failure.ModeOf(rejected.err), "%v", rejected.err)
		require.ErrorContains(t, rejected.err,
			"no more than 2 turns may run here at once, and the queue of waiting callers is full. Send the same request again in 1s")
		after, ok := failure.RetryAfter(rejected.err)
		require.True(t, ok)
		require.Equal(t, time.Second, after)

		time.Sleep(time.Second)
		all[0].permit.Release(true)
		all[0].permit.Release(true)
		synctest.Wait()
		require.NotNil(t, all[2].permit, "first come, first served")
		require.Equal(t, time.Second, all[2].waited)
		require.Nil(t, all[3].permit)
		forced := g.ForceAdmit("a")
		all[1].permit.Release(true)
		synctest.Wait()
		require.Nil(t, all[3].permit, "who is let in whatever there is counts")
		forced.Release(true)
		synctest.Wait()
		require.NotNil(t, all[3].permit)
		all[2].permit.Release(false)
		all[3].permit.Release(false)
		require.True(t, g.isEmpty())
	})
}

func TestController_RejectsCallersThatWouldWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newController(t, 1, func(c *Config) { c.MaxQueue = 100 })
		first := startAdmit(t, g, "a", time.Time{})
		time.Sleep(2 * time.Second)
		first.permit.Release(true) // turns take 2 s

		first = startAdmit(t, g, "a", time.Time{})
		hasty := startAdmit(t, g, "a", time.Now().Add(5*time.Second))
		require.ErrorContains(t, hasty.err, "no turn is expected to end within the 1s that this caller may wait")
		second, third := startAdmit(t, g, "a", time.Time{}), startAdmit(t, g, "a", time.Time{})
		fourth := startAdmit(t, g, "a", time.Time{})
		require.Zero(t, fourth.waited)
		require.ErrorContains(t, fourth.err, "within the 5s that this caller may wait. Send the same request again in 6s")

		time.Sleep(5 * time.Second) // the first turn takes longer than expected
		synctest.Wait()
		require.Equal(t, 5*time.Second, third.waited)
		require.ErrorContains(t, third.err, "none ended within the 5s")
		require.Equal(t, failure.Overloaded, failure.ModeOf(second.err))
		first.permit.Release(true)
		require.True(t, g.isEmpty())
	})
}

func TestController_CancelledCallerReturnsItsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newController(t, 1)
		first, second := startAdmit(t, g, "a", time.Time{}), startAdmit(t, g, "b", time.Time{})
		second.cancel()
		synctest.Wait()
		require.ErrorIs(t, second.err, context.Canceled)
		third := startAdmit(t, g, "b", time.Time{})
		first.permit.Release(true)
		synctest.Wait()
		require.NotNil(t, third.permit, "its place is another's")

		// A caller that gives up at the moment in which it is admitted does not lose a permit.
		for range 100 {
			next := startAdmit(t, g, "a", time.Time{})
			next.cancel()
			third.permit.Release(true)
			synctest.Wait()
			if next.permit != nil {
				next.permit.Release(false)
			}
			require.True(t, g.isEmpty())
			third = startAdmit(t, g, "a", time.Time{})
		}
		third.permit.Release(true)
	})
}

func TestController_CloseRejectsWaitingAndLaterCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newController(t, 1)
		first, second := startAdmit(t, g, "a", time.Time{}), startAdmit(t, g, "a", time.Time{})
		stopping := errors.New("stopping")
		g.Close(stopping)
		synctest.Wait()
		require.ErrorIs(t, second.err, stopping)
		first.permit.Release(true)
		require.ErrorIs(t, startAdmit(t, g, "a", time.Time{}).err, stopping)
		g.ForceAdmit("a").Release(true)
		require.True(t, g.isEmpty())
	})
}

func TestController_AdmitsMoreWhenTheLimitGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := 0
		g := newController(t, 0, func(c *Config) { c.MaxTurns, c.MaxQueue = func() int { return limit }, 10 })
		var all []*pendingAdmit
		for range 4 {
			all = append(all, startAdmit(t, g, "a", time.Time{}))
		}
		require.Len(t, admittedTenants(all), 1, "never none")
		limit = 3
		g.AdmitWaiting()
		synctest.Wait()
		require.Len(t, admittedTenants(all), 3)
		limit = 1
		all[0].permit.Release(true)
		all[1].permit.Release(true)
		synctest.Wait()
		require.Len(t, admittedTenants(all), 3)
		all[2].permit.Release(true)
		synctest.Wait()
		require.Len(t, admittedTenants(all), 4)
		all[3].permit.Release(true)
	})
}

// A tenant may use all permits while it is alone. Once a second tenant arrives, freed permits go to that tenant
// until both have the same number.
func TestController_SharesPermitsAmongTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newController(t, 4)
		var all []*pendingAdmit
		for range 8 {
			all = append(all, startAdmit(t, g, "busy", time.Time{}))
		}
		require.Len(t, admittedTenants(all), 4)
		for range 3 { // each displaces a caller from the full queue
			all = append(all, startAdmit(t, g, "other", time.Time{}))
		}
		rejected := slices.DeleteFunc(slices.Clone(all), func(a *pendingAdmit) bool { return a.err == nil })
		require.Len(t, rejected, 3)
		for n, message := range []string{
			"no more than 2 turns of one tenant may run here at once, and the queue of waiting callers is full",
			"no more than 2 turns of one tenant may run here at once, and the queue of waiting callers is full",
			"no more than 4 turns may run here at once, and the queue of waiting callers is full", // two of each tenant wait, and this is one more
		} {
			require.ErrorContains(t, rejected[n].err, message)
		}
		require.Equal(t, []string{"busy", "busy", "other"}, []string{rejected[0].tenant, rejected[1].tenant, rejected[2].tenant})

		for n, want := range [][]string{{"other"}, {"other", "other"}, {"busy", "other", "other"}, {"busy", "busy", "other", "other"}} {
			all[n].permit.Release(true)
			synctest.Wait()
			require.Equal(t, want, admittedTenants(all[4:]), "after %d have ended", n+1)
		}
		for _, a := range all[4:] {
			if a.permit != nil {
				a.permit.Release(true)
			}
		}
		require.True(t, g.isEmpty())
	})
}

// A tenant within its fair share is never rejected because of other tenants. It waits for at most one running turn
// to end.
func TestController_DoesNotRejectATenantWithinItsFairShare(t *testing.T) {
	const places, took = 8, time.Second
	synctest.Test(t, func(t *testing.T) {
		g := newController(t, places)
		var all []*pendingAdmit
		arrive := func(tenant string) {
			ctx, leave := context.WithCancel(t.Context())
			a := &pendingAdmit{tenant: tenant}
			all = append(all, a)
			began := time.Now()
			go func() {
				defer leave()
				if a.permit, a.err = g.Admit(ctx, tenant, time.Time{}); a.permit != nil {
					a.waited = time.Since(began)
					time.Sleep(took)
					a.permit.Release(true)
				}
			}()
		}
		const seconds = 30
		for tick := range seconds * 40 { // 40 a second of one tenant, 4 of the other; the capacity is 8
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
				require.LessOrEqual(t, a.waited, took)
			}
		}
		require.Equal(t, (seconds-5)*4, ended["modest"])
		require.GreaterOrEqual(t, ended["greedy"], places*5+places/2*(seconds-5))
		require.True(t, g.isEmpty())
	})
}

// Callers that invent tenant names cannot exhaust the memory of the metrics backend.
func TestMetrics_LimitTenantLabels(t *testing.T) {
	g := newController(t, 1)
	for n := range 2 * maxTenantLabels {
		g.metrics.recordAdmitted(fmt.Sprint(n), admittedAtOnce, 0)
	}
	require.Equal(t, "0", g.metrics.tenantAttribute("0").Value.AsString())
	require.Equal(t, otherTenantsLabel, g.metrics.tenantAttribute(fmt.Sprint(maxTenantLabels)).Value.AsString())
	require.Len(t, g.metrics.labelledTenants, maxTenantLabels)
}

func BenchmarkController(b *testing.B) {
	for _, tenants := range []int{1, 100} {
		b.Run(fmt.Sprint(tenants), func(b *testing.B) {
			g, err := New(Config{MaxTurns: func() int { return 1000 }})
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
