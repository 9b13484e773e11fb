package agent

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent/internal/startup"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Lifecycle says how an agent starts and stops (LC-24, LC-37).
type Lifecycle struct {
	Timeout    time.Duration // bounds Start with all its tries (LC-12, 0 leaves it to the caller of Start)
	Retries    int           // how often the caller of Start repeats it after an error (LC-13)
	KeepFailed bool          // a worker whose start failed keeps what it acquired until it is shut down (LC-11)
	DropState  bool          // the agent's changes to its shared configuration are not stored when its worker stops (LC-24)
	// OnStart runs after the tools and the hooks of the plugins have started, and before the first step. It acquires what is
	// no tool: a connection, a temporary file, a background task. Its error fails the start. It may read and change the
	// agent's state and its configuration, and read the configuration of other agents with Config.LoadAgent. Nil does nothing.
	OnStart func(context.Context, hook.Agent) error
	// OnStop runs when the agent stops, if OnStart succeeded, before everything else is stopped. Changes of the configuration
	// are still saved. It gets a share of the time that the shutdown has left. Nil does nothing.
	OnStop func(context.Context, hook.Agent) error
}

// Lifecycle returns how the agent starts and stops.
func (a *Agent) Lifecycle() Lifecycle { return a.config.Lifecycle }

// Start starts what the agent needs to run (LC-30): the tools that own resources, in order; then the agents that this
// agent runs (LC-32); then it loads the shared configuration; and then it runs Start of each plugin, and OnStart. If one
// fails or panics, Start stops the others in reverse order and returns an error that names it. Starting a started agent does nothing.
func (a *Agent) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return nil
	}
	if a.sessionLog == nil { // it was closed
		var err error
		if a.sessionLog, err = openLog(a.config, a.instructions.Text()); err != nil {
			return err
		}
	}
	if err := a.startParts(ctx); err != nil {
		return errors.Join(err, a.started.StopHooks(ctx), a.started.StopParts(ctx))
	}
	a.running, a.closed = true, false
	return nil
}

func (a *Agent) startParts(ctx context.Context) error {
	for _, t := range a.tools.Tools() {
		s, ok := t.(tool.Starter)
		if !ok {
			continue
		}
		if err := s.Start(ctx); err != nil {
			return failure.Newf(failure.ResourceTool, "agent.Start",
				"tool %s of agent %s did not start: %s", t.Spec().Name, a.Name(), failure.PlainMessage(err)).Because(err)
		}
		a.started.AddPart(t.Spec().Name, func(context.Context) error { return s.Close() })
	}
	for _, sub := range a.config.Agents {
		if err := sub.Start(ctx); err != nil {
			return err
		}
		a.started.AddPart(sub.Name(), sub.Stop)
	}
	if a.sharedConfig.Protocol() != "" && a.sharedConfig.HasStore() {
		if err := a.sharedConfig.Reload(ctx); err != nil {
			return err
		}
	}
	for _, p := range a.handlers.Plugins() {
		if err := a.started.StartHook(ctx, "plugin "+p.Name, describe(a), p.Start, p.Stop); err != nil {
			return err
		}
	}
	l := a.config.Lifecycle
	return a.started.StartHook(ctx, "OnStart", describe(a), l.OnStart, l.OnStop)
}

// Stop stops what Start has started, in reverse order, and clears the agent's state (SO-9). OnStop and Stop of the plugins
// run first: the tools still work then, and changes of the shared configuration are saved afterwards. Each hook gets a
// share of the time until the deadline of ctx, and is abandoned after it. Stop continues after errors, and returns all of
// them. It may be called at any time and more than once, except while a step runs.
func (a *Agent) Stop(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	wasRunning, wasClosed := a.running, a.closed
	a.running, a.closed = false, true
	failed := []error{a.started.StopHooks(ctx)}
	if wasRunning && a.sharedConfig.HasStore() {
		if err := a.sharedConfig.Save(ctx); err != nil {
			failed = append(failed, failure.Newf(failure.ModeOf(err), "agent.Stop",
				"the changes of the configuration are lost: %s", failure.PlainMessage(err)).Because(err))
		}
	}
	failed = append(failed, a.started.StopParts(ctx), a.sessionLog.Close())
	a.sessionLog = nil
	a.state.Clear()
	if wasClosed {
		return errors.Join(failed...)
	}
	return errors.Join(append(failed, startup.ClosePlugins(a.handlers.Plugins()))...)
}

// Close is Stop with 10 seconds for all hooks together.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startup.DefaultStopTimeout)
	defer cancel()
	return a.Stop(ctx)
}

// describe returns what hooks get.
func describe(a *Agent) hook.Agent {
	return hook.Agent{
		Name: a.Name(), Description: a.Description(), Version: a.Version(), Model: a.Model(), Tools: a.Tools(), State: a.state, Config: a.sharedConfig,
	}
}
