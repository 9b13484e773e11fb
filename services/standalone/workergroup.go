package standalone

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/standalone/watch"
	workers "github.com/troupe-dev/troupe/services/worker/app"
)

// workerGroup runs a worker for each declared agent. When the files of an agent change, it starts a new worker.
// Once that is ready, it drains the old instance. This is a rolling update, as in a cluster.
type workerGroup struct {
	telemetry *telemetry.Telemetry
	log       *zap.Logger
	cfg       Config
	mesh      *Endpoints // its field GRPC is set before apply is called for the first time

	members         map[string]*member // members that are not being drained, by agent
	workflowsDigest string             // digest of the workflows that the mesh runs
	lastErrors      map[string]string  // last logged error by agent; the key "" is for the folder
	folder          *watch.Folder      // nil when no folder is watched

	running sync.WaitGroup
	failure chan error // has capacity 1
}

// member is one worker.
type member struct {
	agent, id string
	source    agentSource
	worker    *worker.Worker

	stop       context.CancelFunc
	ready      chan struct{}
	done       chan struct{}
	err        error // valid once done is closed
	isDraining atomic.Bool
}

// newWorkerGroup creates a worker for each agent. The ports of the workers are open.
func newWorkerGroup(ctx context.Context, t *telemetry.Telemetry, cfg Config, mesh *Endpoints) (_ *workerGroup, err error) {
	c := &workerGroup{
		telemetry: t, log: t.Log.Named("agents"), cfg: cfg, mesh: mesh,
		members: map[string]*member{}, lastErrors: map[string]string{}, failure: make(chan error, 1),
	}
	if cfg.Watch != "" { // starts before the files are read, so that no change is missed
		if c.folder, err = watch.New(cfg.Watch, c.log); err != nil {
			c.log.Warn("files are not watched; start again to use what you change", zap.Error(err))
		}
	}
	err = c.makeWorkers(ctx)
	if err != nil {
		err = errors.Join(err, c.Close())
	}
	return c, err
}

// makeWorkers creates the first worker of each agent.
func (g *workerGroup) makeWorkers(ctx context.Context) error {
	files := newReadOnceFS(g.cfg.Agents)
	var err error
	if g.mesh.Agents, err = workers.Names(files); err != nil {
		return err
	}
	declared, err := g.loadDeclarations(files)
	if err != nil {
		return err
	}
	g.workflowsDigest, g.mesh.Workflows = declared.workflowsDigest, declared.workflowNames
	for _, name := range g.mesh.Agents {
		m, err := g.makeWorker(ctx, name, declared)
		if err != nil {
			return err
		}
		g.members[name] = m
	}
	return nil
}

// Close closes what newWorkerGroup opened, if Run is never called. Further calls do nothing.
func (g *workerGroup) Close() error {
	var errs []error
	for _, m := range g.members {
		errs = append(errs, m.worker.Close())
	}
	if g.folder != nil {
		errs = append(errs, g.folder.Close())
	}
	return errors.Join(errs...)
}

// makeWorker creates the worker of an agent.
func (g *workerGroup) makeWorker(ctx context.Context, agent string, d declarations) (*member, error) {
	files := &fileRecorder{readOnceFS: d.snapshot}
	m := &member{agent: agent, id: agent + "-" + uuid.NewString()[:8], ready: make(chan struct{}), done: make(chan struct{}), stop: func() {}}
	w, err := workers.New(ctx, g.telemetry, workers.Config{Agent: agent, Docs: g.cfg.Docs, AgentLog: g.cfg.AgentLog, Worker: worker.Config{
		GRPCAddr: anyPort, HTTPAddr: anyPort, Etcd: g.mesh.Etcd, Memory: g.mesh.Memory, Drain: g.cfg.Drain, InstanceID: m.id,
		Identity: identity.Config{DevCA: g.mesh.DevCA},
	}}, files)
	if err != nil {
		return nil, err
	}
	m.worker, m.source = w, d.newAgentSource(agent, files.names)
	return m, nil
}

// Run runs the workers until ctx ends or a worker fails.
func (g *workerGroup) Run(ctx context.Context, ready func()) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer g.running.Wait()
	defer end()
	changed := make(chan struct{}, 1)
	if g.folder != nil {
		g.running.Go(func() { g.folder.Run(life, func() { notifyFailure(changed) }) })
	}
	for _, name := range g.mesh.Agents {
		switch err := g.startWorkers(ctx, life, g.members[name])[0]; {
		case failure.Is(err, failure.PolicySecurity):
			g.logRejection(g.members[name], err)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	ready()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-g.failure:
			return err
		case <-changed:
			g.reload(ctx, life)
		}
	}
}

func notifyFailure(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // a report is pending
	}
}

// startWorkers starts members concurrently. It returns when each is registered as READY, or with the errors of the
// members that failed. Members run until life ends. If ctx ends first, startWorkers stops the members that are not
// ready.
func (g *workerGroup) startWorkers(ctx, life context.Context, members ...*member) []error {
	errs := make([]error, len(members))
	var starting sync.WaitGroup
	for i, m := range members {
		own, stop := context.WithCancel(life)
		m.stop = stop
		g.running.Go(func() {
			defer close(m.done)
			m.err = m.worker.Run(own, func() { close(m.ready) })
		})
		starting.Go(func() {
			select {
			case <-m.ready:
				g.running.Go(func() { g.awaitEnd(m) })
			case <-m.done:
				if errs[i] = m.err; m.err == nil {
					errs[i] = errors.New("it was stopped before it was ready")
				}
			case <-ctx.Done():
				stop()
				<-m.done
			}
		})
	}
	starting.Wait()
	return errs
}

// logRejection logs that a member was rejected, for example because its agent is quarantined (guarantee S18). The mesh
// continues without this member, because otherwise the agent could not be released.
func (g *workerGroup) logRejection(m *member, why error) {
	g.log.Error("an instance was rejected and has ended; release its agent and start again", zap.String("instance", m.id), zap.Error(why))
}

// awaitEnd waits until a member ends. A member that fails ends the mesh, unless an operator drained it or its
// agent is quarantined.
func (g *workerGroup) awaitEnd(m *member) {
	<-m.done
	m.stop()
	switch {
	case m.err == nil:
	case m.isDraining.Load():
		g.log.Warn("a drained instance ended with an error", zap.String("instance", m.id), zap.Error(m.err))
	case failure.Is(m.err, failure.PolicySecurity):
		g.logRejection(m, m.err)
	default:
		select {
		case g.failure <- fmt.Errorf("%s: %w", m.agent, m.err):
		default: // only the first failure is reported
		}
	}
}

// drainInBackground drains a member without waiting for it. It works like `troupe drain`, so that no orchestrator
// takes the end of the instance for a crash.
func (g *workerGroup) drainInBackground(life context.Context, m *member, why string) {
	m.isDraining.Store(true)
	g.running.Go(func() {
		defer m.stop() // in case the drain did not reach it
		select {
		case <-m.done: // it was drained already
			return
		default:
		}
		if err := g.drain(life, m, why); err != nil && life.Err() == nil {
			g.log.Warn("an instance could not be drained, and is stopped", zap.String("instance", m.id), zap.Error(err))
		}
	})
}

func (g *workerGroup) drain(ctx context.Context, m *member, why string) error {
	conn, err := rpc.Dial(g.mesh.GRPC, g.telemetry)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, drainTimeout+stopTime)
	defer cancel()
	_, err = client.New(conn).DrainInstance(ctx, &troupev1.DrainInstanceRequest{
		InstanceId: m.id, Agent: m.agent, Reason: why, Drain: durationpb.New(drainTimeout),
	})
	return err
}

// drainTimeout is how long the steps of a replaced instance may continue. It is a little more than the timeout of a turn.
const drainTimeout = turnTimeout + 10*time.Second
