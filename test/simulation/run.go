// Package simulation runs the real code of a whole mesh in simulated time, under faults that a seed decides. Thousands
// of bad days pass in a minute, and each can be repeated.
package simulation

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/jitter"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/test/chaos/contention"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
	"github.com/troupe-dev/troupe/test/simulation/guests"
	"github.com/troupe-dev/troupe/test/simulation/mesh"
	"github.com/troupe-dev/troupe/test/simulation/network"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// The checks that only the simulation makes.
const (
	CheckLife       = "processes live" // no process ends by itself
	CheckEpochReuse = "no epoch twice" // no epoch is granted again, also after the store went back in time
	// CheckWithoutRegistry is the check that turns go on at known workers while the registry is away.
	CheckWithoutRegistry = "turns without the registry"
)

// Outcome is what a run found.
type Outcome struct {
	Violations []violation.Violation
	Story      []network.Entry
	Hits       map[schedule.Kind]int
	Seen       verify.FaultCounts
	Turns      int
	Took       time.Duration // simulated time
}

// run is one run of a schedule.
type run struct {
	mesh       *mesh.Mesh
	clients    *simclients.Clients
	contention *contention.Run
	guests     *guests.Guests
	conns      []*grpc.ClientConn
}

// simulate runs a schedule. It must be called in a bubble.
func simulate(s schedule.Schedule, log *zap.Logger) (check func() Outcome, err error) {
	r := &run{mesh: mesh.Start(s, log)}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	memoryConn, err := r.mesh.DialMemory()
	if err != nil {
		return nil, err
	}
	if r.conns, err = r.mesh.DialOrchestrators(); err != nil {
		return nil, err
	}
	clock := history.NewClock()
	r.clients = simclients.New(&balancer{seed: s.Seed, conns: r.conns}, clock, "s", s.Seed)
	r.clients.AnswerDeadline = answerDeadline
	if slices.ContainsFunc(s.Faults, func(f schedule.Fault) bool { return f.Kind == schedule.Rollback }) {
		r.clients.AnswerDeadline += mesh.TurnTimeout // a turn whose epoch was lost may last until its timeout
	}
	r.contention = contention.New(clock, "c", s.Seed, memoryrpc.New(memoryConn))
	r.guests = guests.New(&balancer{seed: s.Seed + 1, conns: r.conns}, &r.mesh.Payments, s.Seed)
	_ = retry.Sleep(ctx, schedule.Start)
	r.clients.Start(ctx, s.Clients)
	r.contention.Start(ctx, s.Contenders)
	r.guests.Start(ctx, s.Guests)
	_ = retry.Sleep(ctx, s.Time/2)
	before := r.clients.Counts().Turns
	_ = retry.Sleep(ctx, s.Time/2)
	during := r.clients.Counts().Turns - before
	r.mesh.Network.Heal()
	r.contention.Finish()
	r.clients.Finish()
	r.guests.Finish()
	checkErr := r.clients.CheckSessions(ctx)
	took := r.mesh.Network.Now()
	for _, c := range append(r.conns, memoryConn) {
		checkErr = errors.Join(checkErr, c.Close())
	}
	ended := r.mesh.Stop()
	_ = retry.Sleep(context.Background(), settleTime)
	return func() Outcome {
		o := r.outcome()
		o.Took = took
		for _, err := range ended {
			o.Violations = append(o.Violations, violation.Newf(CheckLife, "%v", err))
		}
		if s.OnlyRegistryIsAway() && during == 0 {
			o.Violations = append(o.Violations, violation.Newf(CheckWithoutRegistry, "no turn ended while the registry had been away for longer than a lease"))
		}
		if checkErr != nil {
			o.Violations = append(o.Violations, violation.Newf(simclients.CheckLiveness, "the sessions cannot be read: %v", checkErr))
		}
		return o
	}, nil
}

// answerDeadline is the time after the last fault within which every client must have its answer. The lease of a turn
// whose orchestrator was lost before it stored an event lives for 30 s.
const answerDeadline = 50 * time.Second

// settleTime is how long the goroutines of crashed processes may take to notice that nobody answers them any more.
const settleTime = 3 * time.Minute

// limit is how much simulated time a run may take.
const limit = 10 * time.Minute

// outcome makes all checks. It searches orders of histories, so it is called outside of the bubble.
func (r *run) outcome() Outcome {
	streams := r.clients.Streams()
	for n := range streams {
		streams[n].IsFirst = false // the requests go to different orchestrators, so the order of arrival is unknown
	}
	effects := verify.CheckEffects(r.mesh.Ledger.Calls(), verify.AttemptsFromStreams(streams), r.clients.CommittedSteps(), r.clients.RequestedMarks())
	found := slices.Concat(r.guests.Violations(), verify.CheckStreams(r.guests.Streams()), r.contention.Violations(), r.contention.Histories(),
		r.clients.Violations(), r.clients.CheckHistories(), verify.CheckStreams(streams), effects)
	hits := r.mesh.Network.Hits()
	if hits[schedule.Rollback] > 0 { // class D0: acknowledged writes may be lost, but no epoch and no stream may be wrong
		found = slices.DeleteFunc(found, func(v violation.Violation) bool { return !slices.Contains(holdsWithoutDurability, v.Check) })
	}
	for _, reuse := range r.mesh.Tier.ReusedEpochs() {
		found = append(found, violation.Newf(CheckEpochReuse, "%s", reuse))
	}
	return Outcome{
		Violations: found, Story: r.mesh.Network.Story(), Hits: hits, Seen: verify.CountFaults(streams, r.mesh.Ledger.Calls()),
		Turns: r.clients.Counts().Turns + r.guests.Turns(),
	}
}

// holdsWithoutDurability are the checks that hold although the store has lost acknowledged writes.
var holdsWithoutDurability = []string{verify.StreamContiguous, verify.StreamEndsOnce, verify.EffectKeepsKey, simclients.CheckLiveness, CheckLife}

// balancer spreads the calls of clients over the orchestrators.
type balancer struct {
	seed  uint64
	calls atomic.Uint64
	conns []*grpc.ClientConn
}

func (b *balancer) pick() *grpc.ClientConn {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strconv.FormatUint(b.seed^b.calls.Add(1), 10)))
	return b.conns[int(h.Sum32()>>3)%len(b.conns)]
}

// Invoke implements grpc.ClientConnInterface.
func (b *balancer) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return b.pick().Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (b *balancer) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return b.pick().NewStream(ctx, desc, method, opts...)
}

// fixJitter makes all pauses repeatable: they depend on the simulated time only.
func fixJitter() {
	jitter.Replace(func(n int64) int64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strconv.FormatInt(time.Now().UnixNano(), 10)))
		return int64(h.Sum64() >> 1 % uint64(n))
	})
}
