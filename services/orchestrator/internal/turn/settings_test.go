package turn

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
)

// compacted is a compaction that a compactor has asked for, and what came of it.
type compacted struct {
	request memory.Compact
	done    conversation.Compaction
	err     error
}

// observedCompactions is a memory service that reports compactions.
type observedCompactions struct {
	memory.Store
	compactions chan compacted
}

func (o observedCompactions) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	done, err := o.Store.CompactSession(ctx, c)
	o.compactions <- compacted{c, done, err}
	return done, err
}

// withCompactor gives a runner a compactor whose model is summarize. The returned channel has its compactions.
func withCompactor(t *testing.T, rig *rig, r *Runner, summarize compact.Summarize) (*compact.Compactor, <-chan compacted) {
	t.Helper()
	observed := observedCompactions{rig.memory, make(chan compacted, 16)}
	c, err := compact.New(compact.Config{Memory: observed, Summarize: summarize, Telemetry: telemetry.Discard()})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	replaceRunner(t, r, func(cfg *Config) { cfg.Compactor = c })
	return c, observed.compactions
}

func configure(t *testing.T, rig *rig, id string, s session.Settings) {
	t.Helper()
	_, err := rig.memory.UpdateSession(t.Context(), memory.SessionUpdate{Ref: session.Ref{Session: id}, Settings: &s, Create: true})
	require.NoError(t, err)
}

func countWarnings(events []*troupev1.Event, reason string) (n int) {
	for _, e := range events {
		if e.GetWarning().GetReason() == reason {
			n++
		}
	}
	return n
}

// Req: LP-21, C-20
func TestSettings_WarnOncePerCrossing(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	configure(t, rig, "s1", session.Settings{MaxMessages: 4})
	turn := func(n int) int {
		events := runToEnd(t, runner, textRequest("s1", fmt.Sprint("r", n)))
		require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
		return countWarnings(events, compact.ReasonSessionLong)
	}
	perTurn := int64(0)
	var warned []int64
	for n := range 5 {
		if turn(n) > 0 {
			warned = append(warned, rig.size(t, "s1"))
		}
		if n == 0 {
			perTurn = rig.size(t, "s1")
		}
	}
	require.Len(t, warned, 1, "once for the crossing")
	require.Greater(t, warned[0], int64(4))
	require.LessOrEqual(t, warned[0]-perTurn, int64(4), "by the turn that crosses")

	_, err := rig.memory.CompactSession(t.Context(), memory.Compact{Ref: session.Ref{Session: "s1"}, Keep: 1})
	require.NoError(t, err)
	again := 0
	for n := range 5 {
		again += turn(10 + n)
	}
	require.Equal(t, 1, again, "and again for the next crossing")
}

// A turn that fails may also cross the limit.
// Req: C-20
func TestSettings_WarnInAFailedTurn(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	configure(t, rig, "s1", session.Settings{MaxMessages: 2})
	rig.setScript("research", func(*scriptedStep) error { return errors.New("broken") })
	warned := 0
	for n := range 4 {
		events := runToEnd(t, runner, textRequest("s1", fmt.Sprint("r", n)))
		require.Equal(t, outcomeFailed, turnResult(events).GetOutcome())
		warned += countWarnings(events, compact.ReasonSessionLong)
	}
	require.Equal(t, 1, warned)
}

// size returns the number of messages of a session.
func (r *rig) size(t *testing.T, id string) int64 {
	t.Helper()
	found, err := r.memory.GetSession(t.Context(), session.Ref{Session: id})
	require.NoError(t, err)
	return found.Size.Messages
}

// Req: LP-21, LP-26, C-20
func TestSettings_CompactBetweenTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		settings session.Settings
		model    error
		want     string // in the summary
	}{
		"by rule":    {session.Settings{Strategy: conversation.SlidingWindow}, nil, "are left out."},
		"by a model": {session.Settings{SummaryByModel: true}, nil, " messages from user: "},
		"by a model, of groups": {
			session.Settings{SummaryByModel: true, Strategy: conversation.Hierarchical}, nil, "synthesis wrote of 1 messages from summary: ",
		},
		"by rule, because the model fails": {session.Settings{SummaryByModel: true}, errors.New("no model"), "Messages up to "},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			runner := rig.newRunner(t, "one")
			_, compactions := withCompactor(t, rig, runner, func(_ context.Context, agent string, messages []conversation.Message) (string, error) {
				return fmt.Sprintf("%s wrote of %d messages from %s: ", agent, len(messages), messages[0].Role), tc.model
			})
			tc.settings.MaxMessages, tc.settings.AutoCompact = 2, true
			configure(t, rig, "s1", tc.settings)
			var events []*troupev1.Event
			for n := 0; rig.size(t, "s1") <= 2; n++ {
				events = runToEnd(t, runner, textRequest("s1", fmt.Sprint("r", n)))
			}
			require.Zero(t, countWarnings(events, compact.ReasonSessionLong))
			got := receive(t, compactions)
			require.NoError(t, got.err)
			require.Equal(t, 1, got.request.Keep, "half of max_messages")
			require.Contains(t, got.done.Summary, tc.want)
			require.Positive(t, got.done.Messages)
			// A compaction that is fast lets the loop above begin another turn, which is compacted, too.
			require.Eventually(t, func() bool { return rig.size(t, "s1") <= 2 }, patience, patience/1000)
		})
	}
}

// Req: LP-26
func TestSettings_KeepTheSummaryOfABusySession(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	asked, answer := make(chan int, 8), make(chan string)
	_, compactions := withCompactor(t, rig, runner, func(_ context.Context, _ string, messages []conversation.Message) (string, error) {
		asked <- len(messages)
		return <-answer, nil
	})
	configure(t, rig, "s1", session.Settings{MaxMessages: 2, AutoCompact: true, SummaryByModel: true})
	n := 0
	for ; rig.size(t, "s1") <= 2; n++ {
		runToEnd(t, runner, textRequest("s1", fmt.Sprint("r", n)))
	}
	receive(t, asked)
	release := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		<-release
		return s.commit(func(*troupev1.StepResult) {})
	})
	ended := make(chan []*troupev1.Event, 1)
	begun := rig.size(t, "s1")
	go func() { ended <- runToEnd(t, runner, textRequest("s1", "busy")) }()
	require.Eventually(t, func() bool { return rig.size(t, "s1") > begun }, patience, patience/1000)
	answer <- "They talked."
	require.Error(t, receive(t, compactions).err, "the session is busy")
	close(release)
	receive(t, ended)
	got := receive(t, compactions)
	require.NoError(t, got.err)
	require.Equal(t, "They talked.", got.done.Summary)
	require.Equal(t, got.request.UpTo, got.done.Last, "nothing that the model has not read")
	require.Empty(t, asked, "the model was asked once")
}
