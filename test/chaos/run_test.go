//go:build chaos

package chaos

import (
	"context"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/contention"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
	"github.com/troupe-dev/troupe/test/overlay"
	"github.com/troupe-dev/troupe/test/redistest"
)

var (
	workerKills = flag.Int("chaos.worker-kills", 30, "workers to kill")
	memoryKills = flag.Int("chaos.memory-kills", 10, "how often to kill the memory service")
	redisKills  = flag.Int("chaos.redis-kills", 10, "how often to kill Redis")
	stops       = flag.Int("chaos.stops", 8, "workers to stop for 1 to 10 s")
	cuts        = flag.Int("chaos.cuts", 40, "replies to lose")
	seedFlag    = flag.Uint64("chaos.seed", 0, "of the plan (0 means a random one)")
	logsFolder  = flag.String("chaos.logs", "", "folder for the programs' logs (empty means that they are removed)")
	bugsFlag    = flag.String("chaos.bugs", "all", "planted bugs to run, such as B1,B7; all or none")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if unchangedFolder != "" {
			_ = os.RemoveAll(unchangedFolder)
		}
		os.Exit(code)
	}))
}

// seed returns the seed that determines the plan and the clients.
var seed = sync.OnceValue(func() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano())
})

// buildPrograms returns the paths of all programs. It builds the changed programs anew and builds unchanged
// programs only once.
func buildPrograms(t *testing.T, changes []overlay.Change, changed ...string) map[string]string {
	t.Helper()
	folder, err := buildUnchanged()
	require.NoError(t, err)
	programs := map[string]string{}
	for _, p := range []string{bugbuild.Memory, bugbuild.Orchestrator, bugbuild.Worker} {
		programs[p] = filepath.Join(folder, filepath.Base(p))
	}
	if len(changes) > 0 {
		folder = t.TempDir()
		require.NoError(t, bugbuild.Build(folder, changes, changed...))
		for _, p := range changed {
			programs[p] = filepath.Join(folder, filepath.Base(p))
		}
	}
	return programs
}

var buildUnchanged = sync.OnceValues(func() (string, error) {
	var err error
	if unchangedFolder, err = os.MkdirTemp("", "troupe-chaos"); err != nil {
		return "", err
	}
	return unchangedFolder, bugbuild.Build(unchangedFolder, nil, bugbuild.Memory, bugbuild.Orchestrator, bugbuild.Worker)
})

var unchangedFolder string // a folder (empty until the programs are built)

// run is one mesh with its clients.
type run struct {
	*mesh.Mesh
	ledger        *ledger.Ledger
	clients       *simclients.Clients // nil when only the memory service runs
	contention    *contention.Run
	reliableStore memory.Store // connected without a proxy, so no reply is lost

	t            *testing.T
	ctx          context.Context //nolint:containedctx // of the clients; it ends with the test
	cancel       context.CancelFunc
	stallDisk    bool         // Redis is killed while it waits for its disk
	frozenWorker atomic.Value // id of the frozen worker
	mu           sync.Mutex
	injected     map[simclients.Fault]int
}

const workers = 3

// startRun starts a mesh without clients.
func startRun(t *testing.T, cfg mesh.Config) *run {
	t.Helper()
	l, err := ledger.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	cfg.LedgerURL = l.URL()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &run{Mesh: mesh.Start(t, cfg), ledger: l, t: t, ctx: ctx, cancel: cancel, injected: map[simclients.Fault]int{}}
	r.frozenWorker.Store("")
	clock := history.NewClock()
	direct, lossy := r.DialMemory(false), r.DialMemory(true)
	closeAtEnd(t, direct, lossy)
	r.reliableStore = memoryrpc.New(direct)
	r.contention = contention.New(clock, "contention", seed(), r.reliableStore, memoryrpc.New(lossy))
	if cfg.Workers > 0 {
		conn := r.DialOrchestrators()
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		r.clients = simclients.New(conn, clock, "clients", seed())
	}
	t.Cleanup(func() { cancel(); r.finishClients() })
	return r
}

func closeAtEnd(t *testing.T, conns ...io.Closer) {
	for _, c := range conns {
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
}

// startClients starts the clients and the contenders. It waits until the clients have ended as many turns as there are
// clients, and the contenders one.
func (r *run) startClients(clients, contenders int) {
	r.t.Helper()
	r.contention.Start(r.ctx, contenders)
	if clients > 0 {
		r.clients.Start(r.ctx, clients)
	}
	r.await("the first turns", time.Minute, func() bool {
		return (contenders == 0 || r.contention.Turns() > 0) && (clients == 0 || r.clients.Counts().Turns >= clients)
	})
}

// poll polls until the condition holds. It returns false if it does not hold in time.
func (r *run) poll(within time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

func (r *run) await(what string, within time.Duration, holds func() bool) {
	r.t.Helper()
	require.True(r.t, r.poll(within, holds), "waited %s in vain for %s", within, what)
}

func (r *run) pause(d time.Duration) { r.poll(d, func() bool { return false }) }

// finish stops the clients and makes the final checks.
func (r *run) finish() {
	r.t.Helper()
	r.finishClients()
	if r.clients == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	require.NoError(r.t, r.clients.CheckSessions(ctx))
}

// finishClients waits until all clients have completed their requests.
func (r *run) finishClients() {
	r.contention.Finish()
	if r.clients != nil {
		r.clients.Finish()
	}
}

// violations returns the violations found so far.
func (r *run) violations() []violation.Violation {
	r.t.Helper()
	found := append(r.contention.Violations(), r.contention.Histories()...)
	if r.clients != nil {
		streams := r.clients.Streams()
		found = slices.Concat(found, r.clients.Violations(), r.clients.CheckHistories(), verify.CheckStreams(streams),
			verify.CheckEffects(r.ledger.Calls(), verify.AttemptsFromStreams(streams), r.clients.CommittedSteps(), r.clients.RequestedMarks()))
	}
	return append(found, verify.CheckKeys(r.redisKeys())...)
}

// redisKeys returns all keys in Redis.
func (r *run) redisKeys() []string {
	r.t.Helper()
	return strings.Fields(r.redisCommand("--scan"))
}

// redisCommand returns Redis's reply to a command.
func (r *run) redisCommand(command ...string) string {
	r.t.Helper()
	host, port, _ := strings.Cut(r.Redis.Addr, ":")
	out, err := exec.CommandContext(r.ctx, "redis-cli", slices.Concat([]string{
		"-h", host, "-p", port, "--no-auth-warning", "--user",
		redistest.Admin, "--pass", redistest.Admin,
	}, command)...).Output()
	require.NoError(r.t, err)
	return string(out)
}
