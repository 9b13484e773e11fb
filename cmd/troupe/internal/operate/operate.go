package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// operateTimeout is the time that the registry and the workers may need in addition to the running steps. It
// includes the rollback after a failure.
const operateTimeout = 20 * time.Second

type pauseCommand struct {
	remote.Query `embed:""`
	Agent        string        `arg:"" help:"Name of the agent."`
	Reason       string        `help:"Why, at most 200 characters; others see it." placeholder:"TEXT"`
	Timeout      time.Duration `help:"How long running steps may take to end, at most 10m; then the pause fails." default:"30s"`
}

// Help implements kong.HelpProvider.
func (pauseCommand) Help() string {
	return "Pauses every registered instance. Turns that need the agent wait for it as long as --route-wait of the orchestrator " +
		"allows. Exit code 0: all are paused. 1: one is not."
}

// Run pauses the agent.
func (p *pauseCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.PauseAgentResponse
	err := p.ShowWithTimeout(ctx, p.Timeout+operateTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.PauseAgent(ctx, &troupev1.PauseAgentRequest{Agent: p.Agent, Reason: p.Reason, Timeout: durationpb.New(p.Timeout)})
		return resp, err
	}, func(w *tabwriter.Writer) { printOutcomes(w, resp.GetInstances()) })
	return outcomeError(err, resp.GetInstances())
}

type resumeCommand struct {
	remote.Query `embed:""`
	Agent        string `arg:"" help:"Name of the agent."`
	Reason       string `help:"Why, at most 200 characters; others see it." placeholder:"TEXT"`
}

// Run resumes the agent.
func (r *resumeCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ResumeAgentResponse
	var out *troupev1.Quarantine
	err := r.ShowWithTimeout(ctx, operateTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		if resp, err = c.ResumeAgent(ctx, &troupev1.ResumeAgentRequest{Agent: r.Agent, Reason: r.Reason}); err == nil {
			out = findQuarantine(ctx, c, r.Agent)
		}
		return resp, err
	}, func(w *tabwriter.Writer) {
		printOutcomes(w, resp.GetInstances())
		if out != nil {
			console.PrintRow(w, fmt.Sprintf("agent %s still gets no steps: it is %s; end the quarantine with: troupe release %s",
				r.Agent, render.Quarantine(out), r.Agent))
		}
	})
	return outcomeError(err, resp.GetInstances())
}

// printOutcomes prints a table with the outcome for each instance.
func printOutcomes(w *tabwriter.Writer, all []*troupev1.InstanceOutcome) {
	fmt.Fprintln(w, "INSTANCE\tSTATE\tFAILURE")
	for _, o := range all {
		state := "-"
		if o.GetStatus() != nil {
			state = string(instancewire.StateFromProto(o.GetStatus().GetState()))
		}
		console.PrintRow(w, o.GetInstanceId(), state, console.OrDash(o.GetFailure().GetMessage()))
	}
}

// outcomeError returns an exit code if the command failed for at least one instance. The printed table gives the
// reasons.
func outcomeError(err error, all []*troupev1.InstanceOutcome) error {
	failed := func(o *troupev1.InstanceOutcome) bool { return o.GetFailure() != nil }
	if err == nil && slices.ContainsFunc(all, failed) {
		return console.ExitCode(process.ExitError)
	}
	return err
}

// shutdownTimeout is the time that an instance may need to stop after its drain.
const shutdownTimeout = 15 * time.Second

// instanceArgs name an instance and the state that it must still have.
type instanceArgs struct {
	Instance       string  `arg:"" help:"Id of the instance; troupe get instances lists them."`
	Agent          string  `help:"Its agent, when several agents have an instance with this id." placeholder:"NAME"`
	IfStateVersion *uint64 `help:"Fail and change nothing unless the instance still has this state_version; troupe describe instance shows it." placeholder:"N"`
}

type drainCommand struct {
	remote.Query `embed:""`
	instanceArgs `embed:""`
	Reason       string        `help:"Why, at most 200 characters; others see it." placeholder:"TEXT"`
	Timeout      time.Duration `help:"How long running steps may take to end, at most 10m; then they are cancelled." default:"30s"`
}

// Help implements kong.HelpProvider.
func (drainCommand) Help() string {
	return "The instance gets no new steps. It ends with its process when its running steps have ended. Exit code 0: it has ended."
}

// Run drains the instance.
func (d *drainCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.DrainInstanceResponse
	return d.ShowWithTimeout(ctx, d.Timeout+shutdownTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.DrainInstance(ctx, &troupev1.DrainInstanceRequest{
			InstanceId: d.Instance, Agent: d.Agent, Reason: d.Reason, Drain: durationpb.New(d.Timeout), IfStateVersion: d.IfStateVersion,
		})
		return resp, err
	}, func(w *tabwriter.Writer) {
		console.PrintRow(w, d.Instance, instancewire.StateFromProto(resp.GetStatus().GetState()))
		for _, e := range resp.GetErrors() {
			console.PrintRow(w, "", e)
		}
	})
}

type startCommand struct {
	remote.Query `embed:""`
	instanceArgs `embed:""`
	Timeout      time.Duration `help:"Bound of the start with all of its tries, at most 10m; the worker's own when absent." placeholder:"DURATION"`
	MaxRetries   *int32        `help:"How often a failed start is retried, 0 to 100; the worker's own when absent." placeholder:"N"`
	KeepFailed   *bool         `help:"Keep an instance whose start failed as it is until it is drained." negatable:""`
	Persistence  string        `help:"Where the agent's changes to its configuration stay at the end: memory or agent." enum:"memory,agent," default:""`
}

// Help implements kong.HelpProvider.
func (startCommand) Help() string {
	return "Starts an instance that registered before it was started. The settings hold for its life. An instance that has started stays as it is."
}

// Run starts the instance.
func (s *startCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.StartInstanceResponse
	wait := cmp.Or(s.Timeout, startTimeout) + shutdownTimeout
	return s.ShowWithTimeout(ctx, wait, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.StartInstance(ctx, &troupev1.StartInstanceRequest{
			InstanceId: s.Instance, Agent: s.Agent, Settings: s.settings(), IfStateVersion: s.IfStateVersion,
		})
		return resp, err
	}, func(w *tabwriter.Writer) {
		console.PrintRow(w, s.Instance, instancewire.StateFromProto(resp.GetStatus().GetState()))
	})
}

// startTimeout is how long the command waits for a start without --timeout.
const startTimeout = 5 * time.Minute

// settings returns the settings that the flags name.
func (s *startCommand) settings() *troupev1.LifecycleSettings {
	settings := &troupev1.LifecycleSettings{MaxRetries: s.MaxRetries}
	if s.Timeout > 0 {
		settings.Timeout = durationpb.New(s.Timeout)
	}
	if s.KeepFailed != nil {
		settings.CleanupOnError = new(!*s.KeepFailed)
	}
	switch s.Persistence {
	case "memory":
		settings.StatePersistence = troupev1.StatePersistence_STATE_PERSISTENCE_MEMORY
	case "agent":
		settings.StatePersistence = troupev1.StatePersistence_STATE_PERSISTENCE_AGENT
	}
	return settings
}
