// Package conformance tests a worker in any language from the outside. The worker runs with --conformance and
// serves ConformanceService. Run makes instances of the worker's test agent, calls each as the mesh would, and
// reports which rules it breaks.
//
// A check sees only what is sent over the network: the replies of LifecycleService and AgentService, and the
// commits to the memory service that Run serves itself. Each check uses its own instances.
package conformance

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/internal/conformance/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/conformance/internal/observation"
	"github.com/troupe-dev/troupe/internal/conformance/internal/steps"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// maxParallelChecks is how many checks run at the same time. It may exceed the number of processors, because a
// check waits most of the time.
const maxParallelChecks = 8

// Check is one rule that a worker must follow.
type Check struct {
	// ID is area/name, for example pause/waits-for-running-steps. The ID of a removed check is never reused.
	ID string
	// Requirement is the source of the rule. It is the id of a requirement, or the message or method of the wire
	// API whose comment states the rule.
	Requirement string
	// Title states the rule in one sentence.
	Title string

	check check.Check
}

// Area returns the part of the ID before the slash. Reports are grouped by it.
func (c Check) Area() string { area, _, _ := strings.Cut(c.ID, "/"); return area }

// Checks returns all checks in the order of a report.
func Checks() []Check {
	var all []Check
	for _, c := range slices.Concat(
		lifecycle.Checks(), observation.Checks(), steps.Checks(),
	) {
		all = append(all, Check{ID: c.ID, Requirement: c.Requirement, Title: c.Title, check: c})
	}
	return all
}

// SelectChecks returns the checks that match any of the patterns. A pattern is an ID, an area, or a path.Match
// pattern for IDs, such as pause/*. Without patterns it returns all checks. It fails with mode user_invalid_input
// if a pattern matches nothing.
func SelectChecks(patterns ...string) ([]Check, error) {
	all := Checks()
	if len(patterns) == 0 {
		return all, nil
	}
	chosen := make([]bool, len(all))
	for _, pattern := range patterns {
		found := false
		for i, c := range all {
			matched, err := path.Match(pattern, c.ID)
			if err != nil {
				return nil, failure.Newf(failure.UserInvalidInput, "conformance.Select", "only: %q is not a pattern: a [ has no ]", pattern)
			}
			if matched || pattern == c.Area() {
				chosen[i], found = true, true
			}
		}
		if !found {
			return nil, failure.Newf(failure.UserInvalidInput, "conformance.Select",
				"only: %q names no check; give an id, an area such as pause, or a pattern such as pause/*", pattern)
		}
	}
	var some []Check
	for i, c := range all {
		if chosen[i] {
			some = append(some, c)
		}
	}
	return some, nil
}

// Config configures a run of the checks.
type Config struct {
	// Address is the host:port at which the worker serves ConformanceService.
	Address string
	// Only limits the run to the checks that match these patterns; see SelectChecks.
	Only []string
	// Repeat is how often a failed check is run again, alone, before it counts as failed. On a busy machine a correct worker
	// may miss a time limit; the report tells which checks needed that. The default is 0.
	Repeat int
	// Progress is called with the first result of each check, in any order but never concurrently (nil means no calls).
	Progress func(Result)
}

// Run runs the checks and returns a report. A failed check is recorded in the report and does not make Run fail.
// Run fails with user_invalid_input if Only is invalid, and with another error if no worker under test serves at
// Address. A run against a correct worker takes a few seconds. If ctx ends first, the remaining checks fail and
// Run returns the error of ctx.
func Run(ctx context.Context, cfg Config) (Report, error) {
	checks, err := SelectChecks(cfg.Only...)
	if err != nil {
		return Report{}, err
	}
	conn, err := rpc.Dial(cfg.Address, telemetry.Discard())
	if err != nil {
		return Report{}, failure.Newf(failure.UserInvalidInput, "conformance.Run", "address: %q is not host:port", cfg.Address).Because(err)
	}
	defer func() { _ = conn.Close() }()
	host := troupev1.NewConformanceServiceClient(conn)
	if err := checkReachable(ctx, host, cfg.Address); err != nil {
		return Report{}, err
	}
	store, stop, err := check.ServeMemory(ctx)
	if err != nil {
		return Report{}, err
	}
	defer stop()

	began := time.Now()
	report := Report{Address: cfg.Address, Results: make([]Result, len(checks))}
	var mu sync.Mutex
	one := func(i int) {
		result := runCheck(ctx, checks[i], host, store)
		mu.Lock()
		defer mu.Unlock()
		report.Results[i] = result
		if cfg.Progress != nil {
			cfg.Progress(result)
		}
	}
	var group errgroup.Group
	group.SetLimit(maxParallelChecks)
	for i, c := range checks {
		if !c.check.Exclusive {
			group.Go(func() error { one(i); return nil })
		}
	}
	_ = group.Wait()
	for i, c := range checks {
		if c.check.Exclusive {
			one(i)
		}
	}
	for range cfg.Repeat {
		repeatFailed(report.Results, func(c Check) Result { return runCheck(ctx, c, host, store) })
	}
	report.Duration = time.Since(began)
	return report, ctx.Err()
}

func runCheck(ctx context.Context, c Check, host troupev1.ConformanceServiceClient, store *check.MemoryService) Result {
	began := time.Now()
	reason := check.Run(ctx, c.check, host, store)
	return Result{Check: c, Duration: time.Since(began), Reason: reason}
}

// repeatFailed replaces the results of failed checks with those of another run.
func repeatFailed(results []Result, run func(Check) Result) {
	for i, r := range results {
		if !r.Passed() {
			results[i] = run(r.Check)
			results[i].FirstReason = cmp.Or(r.FirstReason, r.Reason)
		}
	}
}

// checkReachable returns an error unless a worker under test serves at the address. The error explains how to
// start one.
func checkReachable(ctx context.Context, host troupev1.ConformanceServiceClient, address string) error {
	ctx, cancel := context.WithTimeout(ctx, check.CheckTimeout)
	defer cancel()
	_, err := host.DropInstance(ctx, &troupev1.DropInstanceRequest{InstanceId: "none"})
	err = grpcfailure.FromStatus("conformance.Run", err)
	switch {
	case err == nil:
		return nil
	case failure.Is(err, failure.AgentContract):
		return fmt.Errorf("the server at %s is not under test; start the worker with --conformance", address)
	case failure.Is(err, failure.SystemNetwork, failure.SystemTimeout):
		return fmt.Errorf("cannot reach a worker at %s; start one with --conformance", address)
	default:
		return fmt.Errorf("the worker at %s does not accept DropInstance: %w", address, err)
	}
}
