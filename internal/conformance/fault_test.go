package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// fault is a mistake that a test plants in a reference instance.
type fault string

const (
	admitsOverCapacity           fault = "admits one step more than its capacity"
	answersSlowly                fault = "takes 100 ms to answer GetState"
	omitsErrorDetails            fault = "rejects with a status that has no details"
	ignoresKeepFailed            fault = "terminates an instance despite keep_failed"
	alwaysClosesTurn             fault = "closes the turn with every step"
	commitsCancelled             fault = "commits a cancelled step"
	neverRetriesCommit           fault = "does not retry a commit"
	countsRejectedSteps          fault = "counts rejected steps"
	truncatesEpoch               fault = "truncates the epoch to 32 bits"
	extendsDeadline              fault = "lets a later Shutdown extend the drain"
	neverShortensDeadline        fault = "does not let a later Shutdown shorten the drain"
	reportsDrainingTooLong       fault = "reports draining until it is TERMINATED"
	omitsReasons                 fault = "reports transitions without their reason"
	sendsHeaderLate              fault = "sends the response header with its first item"
	omitsCredential              fault = "does not send the credential of its step"
	ignoresStartupTimeout        fault = "does not bound its startup"
	keepsFailedResources         fault = "does not release the resources of a failed start"
	resetsActiveTime             fault = "resets a counter"
	neverRetriesStartup          fault = "does not retry a startup"
	omitsHeartbeats              fault = "sends no heartbeats while a step is silent"
	omitsResult                  fault = "ends a step without a result"
	ownsUserHistory              fault = "claims to own user_history"
	pauseEndsOtherPause          fault = "ends every Pause at the deadline of one of them"
	pauseReturnsEarly            fault = "answers Pause while a step runs"
	keepsAdmissionClosed         fault = "keeps admission closed after a Pause that failed"
	pausesDuringStartup          fault = "pauses while it starts"
	readyAfterEveryStep          fault = "sets READY whenever a step ends"
	stopsUnstartedInstance       fault = "runs the shutdown hook of an instance that was not started"
	sendsResultBeforeCommit      fault = "sends the result before the commit"
	resumeIgnoresPendingPause    fault = "does not withdraw a pending Pause on Resume"
	retriesFencedCommit          fault = "retries a fenced commit"
	retriesStartupTooOften       fault = "retries a startup more often than max_retries"
	restartsAfterTerminated      fault = "can be started again after TERMINATED"
	shufflesDeltas               fault = "sends text deltas out of order"
	shutdownErrors               fault = "fails Shutdown when a hook fails"
	cancelsStartupWithCaller     fault = "cancels a startup when its caller disconnects"
	runsStartHookPerCaller       fault = "runs the startup hook for each caller"
	getStateWaitsForStartup      fault = "answers GetState only after the startup hook has ended"
	failsStreamOnStepError       fault = "ends the stream with an error when a step fails"
	sendsTwoResults              fault = "sends two results"
	skipsVersion                 fault = "skips a version at a transition"
	waitsForHangingHooks         fault = "waits for hooks that hang"
	watchNeverEnds               fault = "leaves a watch open after TERMINATED"
	watchSkipsTransition         fault = "omits a transition from a watch"
	acceptsFutureVersion         fault = "accepts any after_version"
	ignoresStateVersion          fault = "ignores if_state_version"
	dropsCustomEvents            fault = "sends no custom events"
	omitsRounds                  fault = "commits no tool rounds"
	inventsRounds                fault = "commits rounds of a step that called no tool"
	neverLoadsRounds             fault = "does not load the rounds of its agent"
	alwaysLoadsRounds            fault = "loads rounds of an agent that has none"
	neverRetriesLoad             fault = "does not retry the load of rounds"
	showsUnseenRounds            fault = "shows rounds of steps whose results were not given"
	loadsRoundsWithoutCredential fault = "loads rounds without the credential of its step"
)

// fastWatchChecks selects all watch checks except the one that causes a thousand transitions.
const fastWatchChecks = "watch/[a-q]* watch/res* watch/rej* watch/rep* watch/[s-z]*"

// resultChecks and commitChecks list the checks that cannot pass unless a step ends with exactly one result after
// its commit.
var (
	resultChecks = []string{
		"step/announces-its-admission", "step/cancellation-ends-it", "step/failure-is-a-result", "step/its-deadline-ends-it",
		"step/separates-concurrent-steps", "step/panic-is-a-result", "step/reads-the-last-message-of-the-user", "step/result-names-step-and-agent",
		"step/sends-custom-events", "step/sends-heartbeats", "step/streams-before-the-result", "step/streams-in-order",
	}
	commitChecks = []string{
		"commit/adds-the-answer", "commit/base-mismatch-is-final", "commit/equals-the-result", "commit/fenced-is-final",
		"commit/last-step-closes-the-turn", "commit/passes-the-fence-on", "commit/sends-the-credential", "commit/retried-when-memory-is-unavailable", "commit/turn-not-open-is-final",
	}
)

// faultCases lists each fault, the checks to run against it, and the checks that must fail. fails is the check
// that is meant to find the fault. follow lists other checks that cannot pass because of it.
var faultCases = []struct {
	fault  fault
	only   string
	fails  string
	follow []string
}{
	{admitsOverCapacity, "admission", "admission/one-at-capacity-1", []string{"admission/never-above-capacity"}},
	{answersSlowly, "state/answers-while-s*", "state/answers-while-startup-hangs", []string{
		"state/answers-while-shutdown-hangs",
		"state/answers-while-steps-run",
	}},
	{omitsErrorDetails, "verbs/*-in-paused", "verbs/step-in-paused", nil},
	{ignoresKeepFailed, "startup", "startup/keep-failed-stays-initializing", nil},
	{alwaysClosesTurn, "commit", "commit/last-step-closes-the-turn", nil},
	{commitsCancelled, "step", "step/cancellation-ends-it", []string{"step/failure-is-a-result", "step/its-deadline-ends-it", "step/panic-is-a-result"}},
	{neverRetriesCommit, "commit", "commit/retried-when-memory-is-unavailable", []string{"commit/sends-the-credential"}},
	{countsRejectedSteps, "metrics", "metrics/count-steps", nil},
	{truncatesEpoch, "commit", "commit/passes-the-fence-on", nil},
	{extendsDeadline, "shutdown", "shutdown/deadline-never-grows", nil},
	{neverShortensDeadline, "shutdown", "shutdown/deadline-shrinks", []string{"shutdown/reports-draining"}},
	{reportsDrainingTooLong, "shutdown", "shutdown/drain-ends-with-the-last-step", nil},
	{omitsReasons, fastWatchChecks, "watch/has-reason-and-trace", nil},
	{sendsHeaderLate, "step", "step/announces-its-admission", []string{"step/its-deadline-ends-it"}},
	{omitsCredential, "commit", "commit/sends-the-credential", nil},
	{ignoresStartupTimeout, "startup", "startup/hanging-hook-is-abandoned", []string{"startup/retries-share-the-timeout", "startup/slow-hook-is-cancelled"}},
	{keepsFailedResources, "startup", "startup/releases-after-a-failed-try", nil},
	{resetsActiveTime, "metrics", "metrics/only-grow", nil},
	{neverRetriesStartup, "startup", "startup/retries", []string{"startup/retries-up-to-max-retries"}},
	{omitsHeartbeats, "step", "step/sends-heartbeats", nil},
	{omitsResult, "step", "step/ends-with-one-result", resultChecks},
	{ownsUserHistory, "ownership", "ownership/of-memory", nil},
	{pauseEndsOtherPause, "pause", "pause/survives-another-callers-deadline", nil},
	{pauseReturnsEarly, "pause", "pause/waits-for-running-steps", []string{
		"pause/survives-another-callers-deadline", "pause/deadline-reopens-admission",
		"pause/resume-withdraws-it", "pause/shutdown-ends-it",
	}},
	{keepsAdmissionClosed, "pause", "pause/deadline-reopens-admission", nil},
	{pausesDuringStartup, "verbs/pause-*", "verbs/pause-in-initializing", nil},
	{readyAfterEveryStep, "shutdown", "shutdown/ended-step-does-not-make-ready", []string{"shutdown/drain-ends-with-the-last-step"}},
	{stopsUnstartedInstance, "shutdown", "shutdown/unused-instance-releases-nothing", nil},
	{sendsResultBeforeCommit, "commit", "commit/comes-before-the-result", commitChecks},
	{resumeIgnoresPendingPause, "pause", "pause/resume-withdraws-it", nil},
	{retriesFencedCommit, "commit", "commit/fenced-is-final", nil},
	{retriesStartupTooOften, "startup", "startup/retries-no-more-than-max-retries", nil},
	{restartsAfterTerminated, "shutdown", "shutdown/terminated-is-final", nil},
	{shufflesDeltas, "step", "step/streams-in-order", nil},
	{shutdownErrors, "shutdown", "shutdown/failing-hook-is-reported", []string{"shutdown/hanging-hook-is-abandoned", "shutdown/panicking-hook-is-reported"}},
	{cancelsStartupWithCaller, "startup", "startup/continues-without-its-caller", nil},
	{runsStartHookPerCaller, "startup", "startup/runs-the-hook-once", nil},
	{getStateWaitsForStartup, "state", "state/answers-while-startup-hangs", nil},
	{failsStreamOnStepError, "step", "step/panic-is-a-result", []string{"step/failure-is-a-result"}},
	{sendsTwoResults, "step", "step/ends-with-one-result", resultChecks},
	{skipsVersion, "state", "state/version-counts-transitions", nil},
	{waitsForHangingHooks, "shutdown", "shutdown/hanging-hook-is-abandoned", nil},
	{watchNeverEnds, fastWatchChecks, "watch/ends-with-terminated", []string{
		"watch/is-live", "watch/resumes-after-a-version",
		"watch/reports-every-transition",
	}},
	{watchSkipsTransition, fastWatchChecks, "watch/reports-every-transition", []string{
		"watch/begins-with-the-status", "watch/is-live",
		"watch/resumes-after-a-version", "watch/has-reason-and-trace",
	}},
	{acceptsFutureVersion, fastWatchChecks, "watch/rejects-future-versions", nil},
	{ignoresStateVersion, "verbs/if-*", "verbs/if-state-version", nil},
	{dropsCustomEvents, "step", "step/sends-custom-events", nil},
	{omitsRounds, "rounds", "rounds/committed", nil},
	{inventsRounds, "rounds", "rounds/none-without-a-call", []string{"rounds/loaded"}},
	{neverLoadsRounds, "rounds", "rounds/loaded", []string{"rounds/load-is-retried", "rounds/of-unseen-steps-are-left-out"}},
	{alwaysLoadsRounds, "rounds", "rounds/not-loaded-without-any", nil},
	{neverRetriesLoad, "rounds", "rounds/load-is-retried", nil},
	{showsUnseenRounds, "rounds", "rounds/of-unseen-steps-are-left-out", nil},
	{loadsRoundsWithoutCredential, "rounds", "rounds/loaded", nil},
}

func TestRun_EachFaultFailsItsCheck(t *testing.T) {
	t.Parallel()
	failures := make([]map[string]string, len(faultCases))
	var group errgroup.Group
	group.SetLimit(12) // the runs wait most of the time
	for i, w := range faultCases {
		address := serveHost(t, w.fault)
		group.Go(func() (err error) {
			failures[i], err = failedChecks(t, address, strings.Fields(w.only), append(w.follow, w.fails))
			return err
		})
	}
	require.NoError(t, group.Wait())
	for i, w := range faultCases {
		t.Run(string(w.fault), func(t *testing.T) {
			for id, reason := range failures[i] {
				t.Logf("%s: %s", id, reason)
			}
			expected := slices.Sorted(slices.Values(append([]string{w.fails}, w.follow...)))
			require.Empty(t, cmp.Diff(expected, slices.Sorted(maps.Keys(failures[i]))))
		})
	}
}

// failedChecks returns the failed checks of a worker with their reasons. It runs checks with an unexpected result
// again, because many workers at once may overload the machine.
func failedChecks(t *testing.T, address string, only, expected []string) (map[string]string, error) {
	failed := map[string]string{}
	var again []string
	report, err := Run(t.Context(), Config{Address: address, Only: only})
	for _, r := range report.Results {
		if r.Passed() == slices.Contains(expected, r.ID) {
			again = append(again, r.ID)
		} else if !r.Passed() {
			failed[r.ID] = r.Reason
		}
	}
	if err != nil || len(again) == 0 {
		return failed, err
	}
	report, err = Run(t.Context(), Config{Address: address, Only: again})
	for _, r := range report.Results {
		if !r.Passed() {
			failed[r.ID] = r.Reason
		}
	}
	return failed, err
}
