package turn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// The simulated mesh has two instances of each agent of the research assistant. Each instance runs four steps at
// once. A turn takes 1.3 s, of which research takes 1 s, so the mesh can complete at most eight turns a second.
const (
	instancesPerAgent = 2
	stepsPerInstance  = 4
	turnsPerSecond    = instancesPerAgent * stepsPerInstance / 1.0 // turns a second
)

var stepDurations = map[string]time.Duration{
	"coordinator": 100 * time.Millisecond, "research": time.Second, "synthesis": 200 * time.Millisecond,
}

// simulatedMesh is an orchestrator with simulated time inside a synctest bubble. The other parts of the mesh are
// the real ones and run in the same process.
type simulatedMesh struct {
	*Runner
	cache *instances.Cache
	close func()
}

func newSimulatedMesh(t *testing.T, limits func(places int) gate.Config) *simulatedMesh {
	t.Helper()
	kept := miniredis.NewMiniRedis()
	kept.ClockTTL(true)
	store, err := redistrace.New(redisconn.Config{
		URL: "redis://bubble", Dial: bufferedPipe(kept.Dial),
	}, retention)
	require.NoError(t, err)
	workflows, err := workflow.Load(researchassistant.FS, "")
	require.NoError(t, err)

	lis := bufconn.Listen(1 << 20)
	worker := &scriptedWorker{memory: inmem.New(inmem.Config{Clock: time.Now}), scripts: map[string]func(*scriptedStep) error{}}
	worker.tenant = func(id string) string { name, _, _ := strings.Cut(id, "-"); return name }
	for agent, d := range stepDurations {
		worker.setScript(agent, func(s *scriptedStep) error {
			time.Sleep(d)
			return s.commit(func(r *troupev1.StepResult) {
				if r.Text = "I am " + agent; agent == "coordinator" {
					r.Text, r.NextAgent = "", "research"
				}
			})
		})
	}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterAgentServiceServer(server, worker)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.ProcessPart(lis, 0).Run(ctx, func() {}) })

	b := &simulatedMesh{cache: instances.New(zap.NewNop(), func(bool, map[string]bool) {})}
	var known []registry.Instance
	for _, agent := range []string{"coordinator", "clarification", "research", "synthesis"} {
		for n := range instancesPerAgent {
			known = append(known, registry.Instance{
				ID: fmt.Sprintf("%s-%d", agent, n), Agent: agent, Address: fmt.Sprintf("%s-%d:1", agent, n), State: lifecycle.Ready, Capacity: stepsPerInstance,
			})
		}
	}
	b.cache.Apply(registry.Update{List: &known})
	pool := connection.NewPool(telemetry.Discard(), func(target string, _ *telemetry.Telemetry, _ ...string) (*grpc.ClientConn, error) {
		return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	})
	dispatcher := dispatch.New(b.cache, pool, 5*time.Second)
	g, err := gate.New(limits(b.cache.Capacity()))
	require.NoError(t, err)
	b.Runner, err = New(Config{
		Owner: "one", Timeout: 2 * time.Minute, Memory: worker.memory, Traces: trace.New(store, zap.NewNop()), Permits: g,
		Instances: b.cache, Dispatcher: dispatcher, Workflows: workflows, Telemetry: telemetry.Discard(),
	})
	require.NoError(t, err)
	b.close = func() {
		b.Close(context.WithoutCancel(t.Context()))
		dispatcher.Close()
		pool.Close()
		stop()
		serving.Wait()
		require.NoError(t, store.Close())
		kept.Close()
	}
	return b
}

// bufferedPipe adds a buffer between two ends of a connection, as a network has. A Redis client writes a whole
// pipeline before it reads the replies.
func bufferedPipe(dial func() (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		far, err := dial()
		if err != nil {
			return nil, err
		}
		lis := bufconn.Listen(1 << 20)
		accepted := make(chan net.Conn, 1)
		go func() {
			between, _ := lis.Accept()
			accepted <- between
		}()
		near, err := lis.DialContext(ctx)
		if err != nil {
			return nil, errors.Join(err, lis.Close(), far.Close())
		}
		between := <-accepted
		relay := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_, _ = to.Close(), from.Close()
		}
		go relay(far, between)
		go relay(between, far)
		return near, lis.Close()
	}
}

// outcomeTally counts the outcomes of the turns of one tenant.
type outcomeTally struct {
	offered, refused int
	answeredCount    int           // ended with an answer before the deadline, while load was offered
	lateCount        int           // ended after the caller's deadline
	failures         []string      // reasons of failed turns
	longestRejection time.Duration // the longest until a request was rejected
	longestWait      time.Duration // the longest until the first event of a turn
	calls, atOnce    int           // open calls, now and at most
}

// loadGenerator starts turns at a fixed rate and records their outcomes.
type loadGenerator struct {
	*simulatedMesh
	offeredFor time.Duration
	deadline   time.Duration // of each caller
	began      time.Time

	mu       sync.Mutex
	byTenant map[string]*outcomeTally
}

// offerLoad starts turns at the given rate per second for each tenant, for the given time. The load is open loop:
// callers do not wait for an answer before the next request.
func (s *simulatedMesh) offerLoad(t *testing.T, during, deadline time.Duration, rates map[string]float64) map[string]*outcomeTally {
	t.Helper()
	c := &loadGenerator{simulatedMesh: s, offeredFor: during, deadline: deadline, began: time.Now(), byTenant: map[string]*outcomeTally{}}
	for tenant := range rates {
		c.byTenant[tenant] = &outcomeTally{}
	}
	var asking, arriving sync.WaitGroup
	for tenant, rate := range rates {
		arriving.Go(func() {
			for n := 0; time.Since(c.began) < during; n++ {
				asking.Go(func() { c.runTurn(t, tenant, n) })
				time.Sleep(time.Duration(float64(time.Second) / rate))
			}
		})
	}
	arriving.Wait()
	asking.Wait()
	return c.byTenant
}

func (l *loadGenerator) runTurn(t *testing.T, tenant string, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), l.deadline)
	defer cancel()
	began, first := time.Now(), time.Duration(-1)
	l.recordOutcome(tenant, func(a *outcomeTally) { a.offered++; a.calls++; a.atOnce = max(a.atOnce, a.calls) })
	var result *troupev1.TurnResult
	var err error
	for e, broken := range l.Orchestrate(ctx, request.Request{
		Ref: session.Ref{Tenant: tenant, Session: fmt.Sprint(tenant, "-", n)}, RequestID: "r", Text: "What may an agent write?", Target: "research-assistant",
	}) {
		if first < 0 {
			first = time.Since(began)
		}
		result, err = e.GetTurnResult(), broken
	}
	l.recordOutcome(tenant, func(a *outcomeTally) {
		a.calls--
		switch {
		case result.GetOutcome() == outcomeCompleted:
			a.longestWait = max(a.longestWait, first)
			if time.Since(l.began) <= l.offeredFor {
				a.answeredCount++
			}
		case failure.Is(err, failure.Overloaded):
			a.refused++
			a.longestRejection = max(a.longestRejection, time.Since(began))
		case ctx.Err() != nil:
			a.lateCount++
		default:
			a.failures = append(a.failures, fmt.Sprint(result.GetFailure().GetMessage(), err))
		}
	})
}

func (l *loadGenerator) recordOutcome(tenant string, what func(*outcomeTally)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what(l.byTenant[tenant])
}

// defaultAdmissionConfig returns the admission limits that the flags have by default.
func defaultAdmissionConfig(places int) gate.Config {
	return gate.Config{MaxTurns: func() int { return places }, MaxQueueTime: 5 * time.Second}
}

// At five times its capacity the mesh completes as many turns as at its capacity. No admitted turn fails or misses
// its deadline. All other requests are rejected at once or within their queue time. The memory for queued callers
// does not grow with the load.
func TestRunner_KeepsGoodputUnderOverload(t *testing.T) {
	const during, deadline = 20 * time.Second, 10 * time.Second
	good := map[float64]int{}
	for _, times := range []float64{1, 5, 10} {
		synctest.Test(t, func(t *testing.T) {
			b := newSimulatedMesh(t, defaultAdmissionConfig)
			defer b.close()
			got := b.offerLoad(t, during, deadline, map[string]float64{"default": times * turnsPerSecond})["default"]
			t.Logf("%.0f times: %+v", times, *got)
			require.Empty(t, got.failures)
			require.Zero(t, got.lateCount)
			require.LessOrEqual(t, got.longestRejection, 5*time.Second)
			require.LessOrEqual(t, got.atOnce, 2*b.cache.Capacity()+1) // plus one that is about to be rejected
			good[times] = got.answeredCount
		})
	}
	peak := float64(good[1])
	require.Greater(t, peak, 0.9*turnsPerSecond*during.Seconds())
	for times, n := range good {
		require.GreaterOrEqual(t, float64(n), 0.8*peak, "at %.0f times", times)
	}
}

// A tenant that requests no more than its fair share gets all of it without delay, however much another tenant
// requests.
func TestRunner_OneTenantDoesNotStarveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSimulatedMesh(t, defaultAdmissionConfig)
		defer b.close()
		got := b.offerLoad(t, 20*time.Second, 10*time.Second, map[string]float64{"greedy": 10 * turnsPerSecond, "modest": turnsPerSecond / 2})
		t.Logf("greedy: %+v", *got["greedy"])
		t.Logf("modest: %+v", *got["modest"])
		modest, greedy := got["modest"], got["greedy"]
		require.Zero(t, modest.refused+modest.lateCount+len(modest.failures))
		require.LessOrEqual(t, modest.longestWait, time.Second)
		require.Empty(t, greedy.failures)
		require.GreaterOrEqual(t, float64(modest.answeredCount+greedy.answeredCount), 0.8*turnsPerSecond*20)
	})
}
