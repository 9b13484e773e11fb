package wire

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var (
	word  = rapid.String()
	count = rapid.IntRange(0, 1<<30)
	big   = rapid.Int64Range(0, maxAmount)

	moment = rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "ms")).UTC()
	})
	message = rapid.Custom(func(t *rapid.T) conversation.Message {
		return conversation.Message{
			Sequence: big.Draw(t, "sequence"),
			Role: rapid.SampledFrom([]conversation.Role{
				conversation.RoleUser, conversation.RoleAssistant, conversation.RoleTool, conversation.RoleSummary,
			}).Draw(t, "role"),
			Author: word.Draw(t, "author"),
			Text:   word.Draw(t, "text"),
			Turn:   count.Draw(t, "turn"),
			Time:   moment.Draw(t, "time"),

			ToolCalls: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) conversation.ToolCall {
				return conversation.ToolCall{ID: word.Draw(t, "id"), Name: word.Draw(t, "name"), Arguments: word.Draw(t, "arguments"), Extra: word.Draw(t, "extra")}
			}), 0, 2).Draw(t, "calls"),
			ToolCallID: word.Draw(t, "call"),
			Partial:    rapid.Bool().Draw(t, "partial"),
		}
	})
	failed = rapid.Custom(func(t *rapid.T) *failure.Error {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &failure.Error{
			Mode:    rapid.SampledFrom([]failure.Mode{failure.Unknown, failure.Fenced, failure.ResourceAPI}).Draw(t, "mode"),
			Op:      rapid.StringN(-1, -1, 128).Draw(t, "op"),
			Message: word.Draw(t, "message"),
			Facts:   rapid.MapOfN(rapid.StringN(-1, -1, 64), rapid.StringN(-1, -1, 128), 0, 32).Draw(t, "facts"),
		}
	})
	waits = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) execution.Pending {
		return execution.Pending{
			ID: word.Draw(t, "id"), CallID: word.Draw(t, "call"), Tool: word.Draw(t, "tool"), Arguments: word.Draw(t, "arguments"),
			Needs: oneOrNone(t, "needs", needs), Risk: execution.Effect(word.Draw(t, "risk")), Reason: word.Draw(t, "reason"), Until: moment.Draw(t, "until"),
			Auth: rapid.Ptr(lacks, true).Draw(t, "auth"),
		}
	}), 0, 3)
	lacks = rapid.Custom(func(t *rapid.T) execution.PendingAuth {
		return execution.PendingAuth{
			Login: execution.Login{Name: rapid.StringN(-1, -1, 64).Draw(t, "name"), Prompt: word.Draw(t, "prompt"), URL: word.Draw(t, "url")},
			ID:    word.Draw(t, "key id"), Key: rapid.SliceOfN(rapid.Byte(), 1, 32).Draw(t, "key"), Expires: moment.Draw(t, "expires"),
		}
	})
	answers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) execution.Answer {
		return execution.Answer{
			ID: word.Draw(t, "id"), Verdict: oneOrNone(t, "verdict", verdicts), Text: word.Draw(t, "text"),
			By: word.Draw(t, "by"), Late: rapid.Bool().Draw(t, "late"),
			Sealed: string(rapid.SliceOf(rapid.Byte()).Draw(t, "sealed")), AuthID: word.Draw(t, "key id"),
		}
	}), 0, 3)
	result = rapid.Custom(func(t *rapid.T) execution.Result {
		return execution.Result{
			Step:          count.Draw(t, "step"),
			Agent:         word.Draw(t, "agent"),
			Text:          word.Draw(t, "text"),
			NextAgent:     word.Draw(t, "next"),
			InputRequired: rapid.Bool().Draw(t, "input required"), Stopped: rapid.Bool().Draw(t, "stopped"),
			Observations:  rapid.SliceOf(word).Draw(t, "observations"),
			ToolsCalled:   rapid.SliceOf(word).Draw(t, "tools"),
			Iterations:    count.Draw(t, "iterations"),
			MaxIterations: rapid.Bool().Draw(t, "max iterations"),
			Usage: execution.Usage{
				InputTokens: big.Draw(t, "in"), OutputTokens: big.Draw(t, "out"), ModelCalls: rapid.IntRange(0, maxCalls).Draw(t, "calls"),
				CostMicros: big.Draw(t, "cost"), CachedTokens: big.Draw(t, "cached"), CacheWriteTokens: big.Draw(t, "kept"),
			},
			Confidence: rapid.Ptr(rapid.Float64Range(0, 1), true).Draw(t, "confidence"),
			Sequence:   big.Draw(t, "sequence"),
			Failure:    failed.Draw(t, "failure"),
			Pending:    waits.Draw(t, "pending"),
			Tasks: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) execution.PlannedTask {
				return execution.PlannedTask{Agent: word.Draw(t, "for"), Text: word.Draw(t, "task")}
			}), 0, 3).Draw(t, "tasks"),
			Used: rapid.Ptr(used, true).Draw(t, "used"),
		}
	})
	used = rapid.Custom(func(t *rapid.T) budget.Amounts {
		return budget.Amounts{
			Iterations: big.Draw(t, "iterations"), ModelCalls: big.Draw(t, "calls"), ToolCalls: big.Draw(t, "tools"),
			Tokens: big.Draw(t, "tokens"), Cost: big.Draw(t, "cost"), FanOut: big.Draw(t, "turns"),
		}
	})
	values  = rapid.MapOf(word, rapid.Custom(func(t *rapid.T) json.RawMessage { return json.RawMessage(word.Draw(t, "value")) }))
	outcome = rapid.SampledFrom([]session.Outcome{
		session.OutcomeOpen, session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeInputRequired,
		session.OutcomeAuthRequired,
	})
	turn = rapid.Custom(func(t *rapid.T) session.Turn {
		return session.Turn{
			ID:       word.Draw(t, "id"),
			Trace:    word.Draw(t, "trace"),
			Number:   count.Draw(t, "number"),
			Outcome:  outcome.Draw(t, "outcome"),
			Epoch:    big.Draw(t, "epoch"),
			Attempt:  count.Draw(t, "attempt"),
			Steps:    rapid.SliceOfN(result, 0, 3).Draw(t, "steps"),
			Failure:  failed.Draw(t, "failure"),
			Sequence: big.Draw(t, "sequence"),

			Continues: word.Draw(t, "continues"), Answers: answers.Draw(t, "answers"),
		}
	})
	conversed = rapid.Custom(func(t *rapid.T) session.Session {
		return session.Session{
			ID:            word.Draw(t, "id"),
			User:          word.Draw(t, "user"),
			State:         rapid.SampledFrom(slices.Sorted(maps.Keys(states))).Draw(t, "state"),
			Turns:         count.Draw(t, "turns"),
			Messages:      big.Draw(t, "messages"),
			Bytes:         big.Draw(t, "bytes"),
			Sequence:      big.Draw(t, "sequence"),
			Summarized:    big.Draw(t, "summarized"),
			ArtifactBytes: big.Draw(t, "artifact bytes"),
			Created:       moment.Draw(t, "created"),
			LastActivity:  moment.Draw(t, "active"),
			OpenTurn:      word.Draw(t, "open"),
			LastTrace:     word.Draw(t, "trace"),
			Metadata:      rapid.MapOf(word, word).Draw(t, "metadata"),
			Revision:      big.Draw(t, "revision"),
			WaitingTurn:   word.Draw(t, "waiting"),
			Pending:       waits.Draw(t, "pending"),
		}
	})
	ref = rapid.Custom(func(t *rapid.T) session.Ref {
		return session.Ref{Tenant: word.Draw(t, "tenant"), Session: word.Draw(t, "session")}
	})
)

// trip checks that there and back is the same, over the bytes as they are sent.
func trip[G any, P proto.Message](t *testing.T, values *rapid.Generator[G], to func(G) P, from func(G, P) G) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		want := values.Draw(t, "value")
		bytes, err := proto.Marshal(to(want))
		require.NoError(t, err)
		var sent P
		sent = sent.ProtoReflect().New().Interface().(P)
		require.NoError(t, proto.Unmarshal(bytes, sent))
		if diff := cmp.Diff(want, from(want, sent), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("want -, got +\n%s", diff)
		}
	})
}

// plain drops the value itself, which only requests need, for their tenant.
func plain[G, P any](from func(P) G) func(G, P) G { return func(_ G, p P) G { return from(p) } }

func TestMessage_RoundTrip(t *testing.T) {
	trip(t, message, MessageToProto, plain(MessageFromProto))
}

func TestResult_RoundTrip(t *testing.T) {
	trip(t, result, ResultToProto, plain(ResultFromProto))
}

func TestTurn_RoundTrip(t *testing.T) {
	trip(t, turn, TurnToProto, plain(TurnFromProto))
}

func TestSession_RoundTrip(t *testing.T) {
	trip(t, conversed, SessionToProto, plain(SessionFromProto))
}

func TestBegin_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) memory.Begin {
		return memory.Begin{
			Ref: ref.Draw(t, "ref"), TurnID: word.Draw(t, "turn"), TraceID: word.Draw(t, "trace"),
			Fingerprint: word.Draw(t, "fingerprint"), Message: message.Draw(t, "message"),
			Lease: time.Duration(big.Draw(t, "lease")), Reserve: time.Duration(big.Draw(t, "reserve")), Window: count.Draw(t, "window"), KnownOnly: rapid.Bool().Draw(t, "known only"),
			User: word.Draw(t, "user"), WindowTokens: count.Draw(t, "tokens"), LostEpoch: big.Draw(t, "lost"),
			Continues: word.Draw(t, "continues"), Answers: answers.Draw(t, "answers"),
		}
	}), BeginToProto, func(b memory.Begin, p *troupev1.BeginTurnRequest) memory.Begin {
		return BeginFromProto(b.Ref.Tenant, p)
	})
}

func TestBegun_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) memory.Begun {
		return memory.Begun{
			Found:     rapid.SampledFrom([]memory.Found{memory.FoundBegun, memory.FoundOpen, memory.FoundClosed}).Draw(t, "found"),
			Turn:      turn.Draw(t, "turn"),
			History:   rapid.SliceOfN(message, 0, 3).Draw(t, "history"),
			LeaseLeft: time.Duration(big.Draw(t, "left")),
		}
	}), BegunToProto, plain(BegunFromProto))
}

func TestCommit_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) memory.Commit {
		return memory.Commit{
			Ref: ref.Draw(t, "ref"), TurnID: word.Draw(t, "turn"), Epoch: big.Draw(t, "epoch"), Base: big.Draw(t, "base"),
			Messages: rapid.SliceOfN(message, 0, 3).Draw(t, "messages"), Result: result.Draw(t, "result"), Outcome: outcome.Draw(t, "outcome"),
			State: values.Draw(t, "state"),
		}
	}), CommitToProto, func(c memory.Commit, p *troupev1.CommitStepRequest) memory.Commit {
		return CommitFromProto(c.Ref.Tenant, p)
	})
}

func TestFail_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) memory.Fail {
		return memory.Fail{
			Ref: ref.Draw(t, "ref"), TurnID: word.Draw(t, "turn"), Epoch: big.Draw(t, "epoch"),
			Outcome: outcome.Draw(t, "outcome"), Failure: failed.Draw(t, "failure"),
		}
	}), FailToProto, func(f memory.Fail, p *troupev1.FailTurnRequest) memory.Fail { return FailFromProto(f.Ref.Tenant, p) })
}

func TestMessage_PartsAreOneText(t *testing.T) {
	part := func(text string) *troupev1.Part { return &troupev1.Part{Content: &troupev1.Part_Text{Text: text}} }
	m := MessageFromProto(&troupev1.Message{Parts: []*troupev1.Part{part("one "), part("two")}})
	require.Equal(t, "one two", m.Text)
	require.Empty(t, MessageFromProto(nil))
}

// A value that is added to a .proto must be added to its table.
func TestEnums_AreWhole(t *testing.T) {
	for _, values := range []struct {
		enum  protoreflect.Enum
		known int
	}{
		{troupev1.Role(0), len(roles) + 1},
		{troupev1.SessionState(0), len(states) + 1},
		{troupev1.TurnOutcome(0), len(outcomes)},
		{troupev1.BeginOutcome(0), len(founds) + 1},
		{troupev1.SessionVerb(0), len(verbs) + 1},
		{troupev1.CompactionStrategy(0), len(strategies) + 1},
		{troupev1.ToolEffect(0), len(effects) + 1},
		{troupev1.JournalPhase(0), len(phases) + 1},
		{troupev1.ToolStatus(0), len(statuses) + 1},
		{troupev1.CallNeed(0), len(needs) + 1},
		{troupev1.CallVerdict(0), len(verdicts) + 1},
		{troupev1.BudgetPolicy(0), len(policies) + 1},
	} {
		require.Equal(t, values.enum.Descriptor().Values().Len(), values.known, values.enum.Descriptor().FullName())
	}
	require.Equal(t, troupev1.Role_ROLE_UNSPECIFIED, MessageToProto(conversation.Message{Role: conversation.RoleSystem}).GetRole())
}

// What a provider or a remote turn says that is no amount does not make a step fail that has its answer:
// it is told within the rules.
func TestUsageToProto_KeepsToTheRules(t *testing.T) {
	for _, n := range []int64{math.MinInt64, -1, 0, maxAmount, math.MaxInt64} {
		u := UsageToProto(execution.Usage{InputTokens: n, OutputTokens: n, ModelCalls: int(n), CostMicros: n, CachedTokens: n, CacheWriteTokens: n})
		if u != nil {
			require.NoError(t, protovalidate.Validate(u), n)
		}
		require.NoError(t, protovalidate.Validate(UsedToProto(budget.Amounts{
			Iterations: n, ModelCalls: n, ToolCalls: n, Tokens: n, Cost: n, FanOut: n,
		})), n)
	}
}
