package memorywire

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/wire/wiretest"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var (
	randomValues  = rapid.MapOf(wiretest.Word, rapid.Custom(func(t *rapid.T) json.RawMessage { return json.RawMessage(wiretest.Word.Draw(t, "value")) }))
	randomOutcome = rapid.SampledFrom([]session.Outcome{
		session.OutcomeOpen, session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeInputRequired,
		session.OutcomeAuthRequired,
	})
	randomTurn = rapid.Custom(func(t *rapid.T) session.Turn {
		return session.Turn{
			ID:       wiretest.Word.Draw(t, "id"),
			Trace:    wiretest.Word.Draw(t, "trace"),
			Number:   wiretest.Count.Draw(t, "number"),
			Outcome:  randomOutcome.Draw(t, "outcome"),
			Epoch:    wiretest.Amount.Draw(t, "epoch"),
			Attempt:  wiretest.Count.Draw(t, "attempt"),
			Steps:    rapid.SliceOfN(wiretest.Result, 0, 3).Draw(t, "steps"),
			Failure:  wiretest.Failure.Draw(t, "failure"),
			Sequence: wiretest.Amount.Draw(t, "sequence"),

			Continues: wiretest.Word.Draw(t, "continues"), Answers: wiretest.Answers.Draw(t, "answers"),
		}
	})
	settings = rapid.Custom(func(t *rapid.T) session.Settings {
		return session.Settings{
			MaxMessages: wiretest.Count.Draw(t, "max"), NoAutoSave: rapid.Bool().Draw(t, "no save"), AutoCompact: rapid.Bool().Draw(t, "compact"),
			Strategy:       rapid.SampledFrom(slices.Sorted(maps.Keys(compactionStrategies))).Draw(t, "strategy"),
			SummaryByModel: rapid.Bool().Draw(t, "model"),
		}
	})
	randomSession = rapid.Custom(func(t *rapid.T) session.Session {
		return session.Session{
			ID:    wiretest.Word.Draw(t, "id"),
			User:  wiretest.Word.Draw(t, "user"),
			State: rapid.SampledFrom(slices.Sorted(maps.Keys(sessionStates))).Draw(t, "state"),
			Turns: wiretest.Count.Draw(t, "turns"),
			Size: session.Size{
				Messages: wiretest.Amount.Draw(t, "messages"), Bytes: wiretest.Amount.Draw(t, "bytes"),
				ArtifactBytes: wiretest.Amount.Draw(t, "artifact bytes"),
				Summarized:    wiretest.Amount.Draw(t, "summarized"), Unsaved: wiretest.Amount.Draw(t, "unsaved"),
			},
			LastSequence: wiretest.Amount.Draw(t, "sequence"),
			Settings:     settings.Draw(t, "settings"),
			Created:      wiretest.Moment.Draw(t, "created"),
			LastActivity: wiretest.Moment.Draw(t, "active"),
			OpenTurn:     wiretest.Word.Draw(t, "open"),
			LastTrace:    wiretest.Word.Draw(t, "trace"),
			Metadata:     rapid.MapOf(wiretest.Word, wiretest.Word).Draw(t, "metadata"),
			Revision:     wiretest.Amount.Draw(t, "revision"),
			WaitingTurn:  wiretest.Word.Draw(t, "waiting"),
			Pending:      wiretest.Pending.Draw(t, "pending"),
		}
	})
	randomRef = rapid.Custom(func(t *rapid.T) session.Ref {
		return session.Ref{Tenant: wiretest.Word.Draw(t, "tenant"), Session: wiretest.Word.Draw(t, "session")}
	})
)

func TestTurn_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, randomTurn, TurnToProto, wiretest.WithoutOriginal(TurnFromProto))
}

func TestSession_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, randomSession, SessionToProto, wiretest.WithoutOriginal(SessionFromProto))
}

func TestBegin_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.Begin {
		return memory.Begin{
			Ref: randomRef.Draw(t, "ref"), TurnID: wiretest.Word.Draw(t, "turn"), TraceID: wiretest.Word.Draw(t, "trace"),
			Fingerprint: wiretest.Word.Draw(t, "fingerprint"), Message: wiretest.Message.Draw(t, "message"),
			LeaseTTL: time.Duration(wiretest.Amount.Draw(t, "lease")), TakeoverGrace: time.Duration(wiretest.Amount.Draw(t,
				"reserve")), Window: wiretest.Count.Draw(t, "window"), LookupOnly: rapid.Bool().Draw(t, "known only"),
			User: wiretest.Word.Draw(t, "user"), WindowTokens: wiretest.Count.Draw(t, "tokens"), LostEpoch: wiretest.Amount.Draw(t, "lost"),
			Predecessor: memory.Predecessor{Continues: wiretest.Word.Draw(t, "continues"), Answers: wiretest.Answers.Draw(t, "answers")},
		}
	}), BeginToProto, func(b memory.Begin, p *troupev1.BeginTurnRequest) memory.Begin {
		return BeginFromProto(b.Ref.Tenant, p)
	})
}

func TestBegun_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.BeginResult {
		return memory.BeginResult{
			Status:    rapid.SampledFrom([]memory.BeginStatus{memory.StatusBegun, memory.StatusOpen, memory.StatusClosed}).Draw(t, "found"),
			Turn:      randomTurn.Draw(t, "turn"),
			History:   rapid.SliceOfN(wiretest.Message, 0, 3).Draw(t, "history"),
			LeaseLeft: time.Duration(wiretest.Amount.Draw(t, "left")),
			Settings:  settings.Draw(t, "settings"), Messages: wiretest.Amount.Draw(t, "messages"), Removed: wiretest.Amount.Draw(t, "removed"),
		}
	}), BegunToProto, wiretest.WithoutOriginal(BegunFromProto))
}

func TestCommit_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.Commit {
		return memory.Commit{
			Ref: randomRef.Draw(t, "ref"), TurnID: wiretest.Word.Draw(t, "turn"), Epoch: wiretest.Amount.Draw(t, "epoch"), Base: wiretest.Amount.Draw(t, "base"),
			Messages: rapid.SliceOfN(wiretest.Message, 0, 3).Draw(t, "messages"), Result: wiretest.Result.Draw(t, "result"), Outcome: randomOutcome.Draw(t,
				"outcome"),
			State: randomValues.Draw(t, "state"), Expected: rapid.MapOf(wiretest.Word, wiretest.Amount).Draw(t, "expected"),
		}
	}), CommitToProto, func(c memory.Commit, p *troupev1.CommitStepRequest) memory.Commit {
		return CommitFromProto(c.Ref.Tenant, p)
	})
}

func TestFail_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.Fail {
		return memory.Fail{
			Ref: randomRef.Draw(t, "ref"), TurnID: wiretest.Word.Draw(t, "turn"), Epoch: wiretest.Amount.Draw(t, "epoch"),
			Outcome: randomOutcome.Draw(t, "outcome"), Failure: wiretest.Failure.Draw(t, "failure"),
		}
	}), FailToProto, func(f memory.Fail, p *troupev1.FailTurnRequest) memory.Fail { return FailFromProto(f.Ref.Tenant, p) })
}

// Every value of these protobuf enums is in its conversion table, so a value added to a .proto must be added to
// the table too.
func TestEnums_CoverEveryValue(t *testing.T) {
	for _, values := range []struct {
		enum  protoreflect.Enum
		known int
	}{
		{troupev1.SessionState(0), len(sessionStates) + 1},
		{troupev1.TurnOutcome(0), len(turnOutcomes)},
		{troupev1.BeginOutcome(0), len(beginStatuses) + 1},
		{troupev1.SessionVerb(0), len(sessionVerbs) + 1},
		{troupev1.CompactionStrategy(0), len(compactionStrategies) + 1},
	} {
		require.Equal(t, values.enum.Descriptor().Values().Len(), values.known, values.enum.Descriptor().FullName())
	}
}
