// Package step runs the steps of a round. It sends each step to an instance, and to another one when an attempt is
// lost or retried. It returns when every step of the round has a result.
package step

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Config holds the dependencies that the steps of all turns share.
type Config struct {
	Owner string // name of this orchestrator in the audit log
	// CancelDescendants asks the descendants of a turn to end as cancelled. It does not wait until they have
	// ended.
	CancelDescendants func(context.Context, Descendants) error

	Instances   *instances.Cache
	Dispatcher  *dispatch.Dispatcher
	Workflows   *workflow.Set
	Credentials *turncred.Authority // for calls to the memory service (nil means that the mesh has no identities)
	Telemetry   *telemetry.Telemetry
}

// Services holds the dependencies and metrics of all steps. An orchestrator has one Services. It is safe for
// concurrent use.
type Services struct {
	Config
	lost       metric.Int64Counter
	violations *telemetry.Violations
}

// New returns the Services for a configuration.
func New(cfg Config) (*Services, error) {
	lost, err := cfg.Telemetry.Metrics.Meter("troupe/orchestrator").Int64Counter("troupe.attempts.lost",
		metric.WithDescription("Attempts at a step that their instance did not bring to an end, by agent."))
	if err != nil {
		return nil, err
	}
	violations, err := cfg.Telemetry.Violations()
	return &Services{Config: cfg, lost: lost, violations: violations}, err
}

// Turn runs the steps of one turn. Only one goroutine may use it.
type Turn struct {
	Events *publish.Writer
	// IsTakenOver is true from a takeover until the first step is dispatched. An earlier owner may have begun that
	// step, so its instance looks for a journal.
	IsTakenOver bool

	assignment *assignment.Turn
	services   *Services
}

// NewTurn returns a Turn that runs the steps of one turn.
func (s *Services) NewTurn(given *assignment.Turn, events *publish.Writer, resumed bool) *Turn {
	given.Services = assignment.Services{Instances: s.Instances, Workflows: s.Workflows, Credentials: s.Credentials, Audit: s.Telemetry.Audit}
	given.Events = events
	return &Turn{Events: events, IsTakenOver: resumed, assignment: given, services: s}
}

// Run runs the open steps of a round, and returns their results in the order of the tasks. An error ends the turn.
// ctx outlives work, and events are stored under ctx.
//
// All steps of a round share one epoch, so a lost attempt cannot be fenced while the others run. After they have
// ended, Run reclaims the turn once. Steps without a committed result are then sent to other instances.
func (t *Turn) Run(work, ctx context.Context, c *cursor.Cursor, tasks []cursor.Task, conversation assignment.Conversation) ([]execution.Result, error) {
	all := make([]*attempt, len(tasks))
	for i, task := range tasks {
		all[i] = t.newAttempt(task, conversation)
	}
	t.IsTakenOver = t.IsTakenOver && len(tasks) == 0
	for open := all; len(open) > 0; {
		t.setShares(open)
		if err := t.runConcurrently(work, ctx, c, open); err != nil {
			return nil, t.fenceQuarantined(work, open, err)
		}
		open = slices.DeleteFunc(slices.Clone(open), func(a *attempt) bool { return a.lastLoss == nil })
		if len(open) == 0 {
			break
		}
		var err error
		if open, err = t.replaceLost(work, ctx, open); err != nil {
			return nil, err
		}
	}
	var results []execution.Result
	for _, a := range all {
		results = append(results, a.result)
	}
	return results, nil
}

// runConcurrently runs attempts concurrently and returns when all have ended. If one of them fails the turn, it
// stops the others.
func (t *Turn) runConcurrently(work, ctx context.Context, c *cursor.Cursor, open []*attempt) error {
	if len(open) == 1 {
		return t.execute(work, ctx, open[0])
	}
	round, abort := context.WithCancelCause(work)
	defer abort(nil)
	var running sync.WaitGroup
	for _, a := range open {
		running.Go(func() {
			panics.Guard("turn", abort, func() {
				err := t.execute(round, ctx, a)
				if err == nil && a.lastLoss == nil {
					err = c.TurnError(a.Task, a.result)
				}
				if err != nil {
					abort(err)
				}
			})
		})
	}
	running.Wait()
	return context.Cause(round)
}

// replaceLost reclaims the turn from lost attempts. It returns the attempts that must continue at other instances.
func (t *Turn) replaceLost(work, ctx context.Context, lost []*attempt) (again []*attempt, err error) {
	committed, err := t.reclaim(work, lost)
	if err != nil {
		return nil, err
	}
	for _, a := range lost {
		ended, err := t.endLostAttempt(ctx, a, committed[a.Origin.Number])
		if err != nil {
			return nil, err
		}
		if !ended {
			again = append(again, a)
		}
	}
	return again, nil
}

// reclaim fences the workers of lost attempts. It returns the results that these workers had committed.
func (t *Turn) reclaim(work context.Context, lost []*attempt) (map[int]*troupev1.StepResult, error) {
	steps := map[int]bool{}
	for _, a := range lost {
		steps[a.Origin.Number] = true
	}
	before := t.assignment.Lease.Epoch()
	committed, err := t.assignment.Lease.Reclaim(work, steps)
	if epoch := t.assignment.Lease.Epoch(); epoch != before {
		t.Events.EventLog().SetTurnEpoch(epoch)
	}
	return committed, err
}

// setShares gives each of the open steps its share of the budget.
func (t *Turn) setShares(open []*attempt) {
	var steps []int
	for _, a := range open {
		steps = append(steps, a.Origin.Number)
	}
	for i, share := range t.assignment.DivideBudget(steps) {
		open[i].Share = share
	}
}
