package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// fault is a mistake that is planted in the reference.
type fault string

const (
	admitsOneMore         fault = "admits one step above its capacity"
	bareStatuses          fault = "refuses with a status that has no details"
	cleansUpAlways        fault = "ends an instance that it should keep"
	closesAlways          fault = "closes the turn with every step"
	commitsCancelled      fault = "commits what was cancelled"
	commitsOnce           fault = "does not try a commit again"
	countsRefused         fault = "counts steps that it refused"
	cutsEpoch             fault = "cuts the epoch to 32 bits"
	deadlineGrows         fault = "lets a later Shutdown lengthen the drain"
	deadlineNeverShrinks  fault = "does not let a later Shutdown shorten the drain"
	forgetsReasons        fault = "tells transitions without their reason"
	headerLate            fault = "sends the response header with its first item"
	ignoresStartupTimeout fault = "does not bound its startup"
	metricsGoBack         fault = "starts a counter anew"
	neverRetries          fault = "does not try a startup again"
	noResult              fault = "ends a step without a result"
	ownsUserHistory       fault = "takes user_history for its own"
	pauseReturnsEarly     fault = "answers Pause while a step runs"
	pauseStaysClosed      fault = "keeps admission closed after a Pause that failed"
	pausesInitializing    fault = "pauses while it starts"
	readyAfterStep        fault = "sets READY whenever a step ends"
	releasesUnused        fault = "runs the shutdown hook of an instance that was not started"
	resultBeforeCommit    fault = "sends the result before the commit"
	resumeIgnoresPending  fault = "does not take a waiting Pause back"
	retriesFenced         fault = "sends a fenced commit again"
	revives               fault = "starts again after TERMINATED"
	shufflesDeltas        fault = "sends text deltas out of order"
	shutdownErrors        fault = "fails Shutdown when a hook fails"
	startsPerCaller       fault = "runs the startup hook for each caller"
	stateWaitsForStartup  fault = "answers GetState when the startup hook has ended"
	throwsOut             fault = "ends the stream with an error when a step fails"
	twoResults            fault = "sends two results"
	versionJumps          fault = "counts a transition twice"
	waitsForHooks         fault = "waits for hooks that hang"
	watchNeverEnds        fault = "leaves a watch open after TERMINATED"
	watchSkips            fault = "leaves a transition out of a watch"
	watchesTheFuture      fault = "takes any after_version"
)

// watchQuickly are the checks of watch but for the one that makes a thousand transitions.
const watchQuickly = "watch/[a-q]* watch/res* watch/ref* watch/[s-z]*"

// wrong are workers with one fault each, the checks that they are put to, and those that
// must fail: the first is the one for this fault, and follow are those that cannot pass
// either. A fault that breaks every step is put to its own check alone.
var wrong = []struct {
	fault  fault
	only   string
	fails  string
	follow []string
}{
	{admitsOneMore, "admission", "admission/one-at-capacity-1", []string{"admission/never-above-capacity"}},
	{bareStatuses, "verbs/*-in-paused", "verbs/step-in-paused", nil},
	{cleansUpAlways, "startup", "startup/keeps-failed", nil},
	{closesAlways, "commit", "commit/last-step-closes-the-turn", nil},
	{commitsCancelled, "step", "step/cancelling-ends-it", []string{"step/failing-is-a-result", "step/its-deadline-ends-it", "step/panicking-is-a-result"}},
	{commitsOnce, "commit", "commit/tried-again-when-memory-is-away", nil},
	{countsRefused, "metrics", "metrics/count-steps", nil},
	{cutsEpoch, "commit", "commit/passes-the-fence-on", nil},
	{deadlineGrows, "shutdown", "shutdown/deadline-never-grows", nil},
	{deadlineNeverShrinks, "shutdown", "shutdown/deadline-shrinks", []string{"shutdown/says-that-it-drains"}},
	{forgetsReasons, watchQuickly, "watch/says-why-and-by-whom", nil},
	{headerLate, "step", "step/announces-its-admission", []string{"step/cancelling-ends-it", "step/its-deadline-ends-it"}},
	{ignoresStartupTimeout, "startup", "startup/hanging-hook-is-given-up", []string{"startup/retries-share-the-timeout", "startup/slow-hook-is-cancelled"}},
	{metricsGoBack, "metrics", "metrics/only-grow", nil},
	{neverRetries, "startup", "startup/retries", nil},
	{noResult, "step/ends-with-one-result", "step/ends-with-one-result", nil},
	{ownsUserHistory, "ownership", "ownership/of-memory", nil},
	{pauseReturnsEarly, "pause", "pause/waits-for-running-steps", []string{"pause/its-deadline-opens-admission", "pause/resume-takes-it-back", "pause/shutdown-overtakes-it"}},
	{pauseStaysClosed, "pause", "pause/its-deadline-opens-admission", nil},
	{pausesInitializing, "verbs/pause-*", "verbs/pause-in-initializing", nil},
	{readyAfterStep, "shutdown", "shutdown/a-step-that-ends-does-not-revive", nil},
	{releasesUnused, "shutdown", "shutdown/of-an-unused-instance-releases-nothing", nil},
	{resultBeforeCommit, "commit/comes-before-the-result", "commit/comes-before-the-result", nil},
	{resumeIgnoresPending, "pause", "pause/resume-takes-it-back", nil},
	{retriesFenced, "commit", "commit/fenced-is-final", nil},
	{revives, "shutdown", "shutdown/terminated-is-final", nil},
	{shufflesDeltas, "step", "step/streams-in-order", nil},
	{shutdownErrors, "shutdown", "shutdown/failing-hook-is-reported", []string{"shutdown/hanging-hook-is-given-up", "shutdown/panicking-hook-is-reported"}},
	{startsPerCaller, "startup/runs-the-hook-once", "startup/runs-the-hook-once", nil},
	{stateWaitsForStartup, "state", "state/answers-while-startup-hangs", nil},
	{throwsOut, "step", "step/panicking-is-a-result", []string{"step/failing-is-a-result"}},
	{twoResults, "step/ends-with-one-result", "step/ends-with-one-result", nil},
	{versionJumps, "state", "state/version-counts-transitions", nil},
	{waitsForHooks, "shutdown", "shutdown/hanging-hook-is-given-up", nil},
	{watchNeverEnds, watchQuickly, "watch/ends-with-terminated", []string{"watch/is-live", "watch/resumes-after-a-version", "watch/tells-every-transition"}},
	{watchSkips, watchQuickly, "watch/tells-every-transition", []string{"watch/begins-with-the-status", "watch/is-live", "watch/resumes-after-a-version", "watch/says-why-and-by-whom"}},
	{watchesTheFuture, watchQuickly, "watch/refuses-the-future", nil},
}

func TestRun_EachWrongWorkerFailsItsCheck(t *testing.T) {
	reports := make([]Report, len(wrong))
	var group errgroup.Group
	group.SetLimit(4) // they wait most of the time
	for i, w := range wrong {
		address := serveHost(t, w.fault)
		group.Go(func() (err error) {
			reports[i], err = Run(t.Context(), Config{Address: address, Only: strings.Fields(w.only)})
			return err
		})
	}
	require.NoError(t, group.Wait())
	for i, w := range wrong {
		t.Run(string(w.fault), func(t *testing.T) {
			var failed []string
			for _, r := range reports[i].Results {
				if !r.Passed() {
					failed = append(failed, r.ID)
					t.Logf("%s: %s", r.ID, r.Reason)
				}
			}
			expected := slices.Sorted(slices.Values(append([]string{w.fails}, w.follow...)))
			slices.Sort(failed)
			require.Empty(t, cmp.Diff(expected, failed))
		})
	}
}
