// Package wiretest generates values for the round-trip tests of package wire and its subpackages.
package wiretest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// These are the largest numbers that the generators produce: an amount, and the model calls of one step. They
// equal the limits of package wire.
const (
	MaxAmount     = 1<<53 - 1
	MaxModelCalls = 1_000_000
)

// Generators of values.
var (
	// Word is any text.
	Word = rapid.String()
	// Count generates a count that fits into 32 bits.
	Count = rapid.IntRange(0, 1<<30)
	// Amount generates an amount up to the largest one allowed on the wire.
	Amount = rapid.Int64Range(0, MaxAmount)

	// Moment generates a time with millisecond precision, or the zero time.
	Moment = rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "ms")).UTC()
	})
	// Message generates a message of a conversation.
	Message = rapid.Custom(func(t *rapid.T) conversation.Message {
		return conversation.Message{
			Sequence: Amount.Draw(t, "sequence"),
			Role: rapid.SampledFrom([]conversation.Role{
				conversation.RoleUser, conversation.RoleAssistant, conversation.RoleTool, conversation.RoleSummary,
			}).Draw(t, "role"),
			Author: Word.Draw(t, "author"),
			Text:   Word.Draw(t, "text"),
			Turn:   Count.Draw(t, "turn"),
			Time:   Moment.Draw(t, "time"),

			ToolCalls: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) conversation.ToolCall {
				return conversation.ToolCall{ID: Word.Draw(t, "id"), Name: Word.Draw(t, "name"), Arguments: Word.Draw(t, "arguments"), Extra: Word.Draw(t,
					"extra")}
			}), 0, 2).Draw(t, "calls"),
			ToolCallID: Word.Draw(t, "call"),
			Partial:    rapid.Bool().Draw(t, "partial"),
		}
	})
	// Failure generates a failure, or nil.
	Failure = rapid.Custom(func(t *rapid.T) *failure.Error {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &failure.Error{
			Mode:    rapid.SampledFrom([]failure.Mode{failure.Unknown, failure.Fenced, failure.ResourceAPI}).Draw(t, "mode"),
			Op:      rapid.StringN(-1, -1, 128).Draw(t, "op"),
			Message: Word.Draw(t, "message"),
			Facts:   rapid.MapOfN(rapid.StringN(-1, -1, 64), rapid.StringN(-1, -1, 128), 0, 32).Draw(t, "facts"),
		}
	})
	// Pending generates calls that wait for an answer.
	Pending = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) execution.Pending {
		return execution.Pending{
			ID: Word.Draw(t, "id"), CallID: Word.Draw(t, "call"), Tool: Word.Draw(t, "tool"), Arguments: Word.Draw(t, "arguments"),
			Needs: OneOrNone(t, "needs", execution.NeedApproval, execution.NeedResult,
				execution.NeedAuth), Risk: execution.Effect(Word.Draw(t, "risk")), Reason: Word.Draw(t, "reason"), Until: Moment.Draw(t, "until"),
			Auth: rapid.Ptr(pendingAuth, true).Draw(t, "auth"),
		}
	}), 0, 3)
	pendingAuth = rapid.Custom(func(t *rapid.T) execution.PendingAuth {
		return execution.PendingAuth{
			Login: execution.Login{Name: rapid.StringN(-1, -1, 64).Draw(t, "name"), Prompt: Word.Draw(t, "prompt"), URL: Word.Draw(t, "url")},
			ID:    Word.Draw(t, "key id"), Key: rapid.SliceOfN(rapid.Byte(), 1, 32).Draw(t, "key"), Expires: Moment.Draw(t, "expires"),
		}
	})
	// Answers generates answers to waiting calls.
	Answers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) execution.Answer {
		return execution.Answer{
			ID: Word.Draw(t, "id"), Verdict: OneOrNone(t, "verdict", execution.Approve, execution.Deny, execution.Stop, execution.Succeed,
				execution.Fail), Text: Word.Draw(t, "text"),
			By: Word.Draw(t, "by"), Late: rapid.Bool().Draw(t, "late"),
			Sealed: string(rapid.SliceOf(rapid.Byte()).Draw(t, "sealed")), AuthID: Word.Draw(t, "key id"),
		}
	}), 0, 3)
	// Result generates the result of a step.
	Result = rapid.Custom(func(t *rapid.T) execution.Result {
		return execution.Result{
			Step:          Count.Draw(t, "step"),
			Agent:         Word.Draw(t, "agent"),
			Text:          Word.Draw(t, "text"),
			NextAgent:     Word.Draw(t, "next"),
			InputRequired: rapid.Bool().Draw(t, "input required"), Stopped: rapid.Bool().Draw(t, "stopped"),
			Observations: rapid.SliceOf(Word).Draw(t, "observations"),
			ToolsCalled:  rapid.SliceOf(Word).Draw(t, "tools"),
			Iterations:   Count.Draw(t, "iterations"),
			Usage: execution.Usage{
				InputTokens: Amount.Draw(t, "in"), OutputTokens: Amount.Draw(t, "out"), ModelCalls: rapid.IntRange(0, MaxModelCalls).Draw(t, "calls"),
				CostMicros: Amount.Draw(t, "cost"), CachedTokens: Amount.Draw(t, "cached"), CacheWriteTokens: Amount.Draw(t, "kept"),
			},
			Confidence: rapid.Ptr(rapid.Float64Range(0, 1), true).Draw(t, "confidence"),
			Sequence:   Amount.Draw(t, "sequence"),
			Failure:    Failure.Draw(t, "failure"),
			Pending:    Pending.Draw(t, "pending"),
			Tasks: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) execution.PlannedTask {
				return execution.PlannedTask{Agent: Word.Draw(t, "for"), Text: Word.Draw(t, "task")}
			}), 0, 3).Draw(t, "tasks"),
			Used:       rapid.Ptr(Used, true).Draw(t, "used"),
			Incomplete: OneOrNone(t, "incomplete", string(event.MaxIterations), string(event.FinishLength), string(event.FinishFilter), string(event.FinishOther)),
		}
	})
	// Used generates the used budget of an attempt.
	Used = rapid.Custom(func(t *rapid.T) budget.Amounts {
		return budget.Amounts{
			Iterations: Amount.Draw(t, "iterations"), ModelCalls: Amount.Draw(t, "calls"), ToolCalls: Amount.Draw(t, "tools"),
			Tokens: Amount.Draw(t, "tokens"), Cost: Amount.Draw(t, "cost"), FanOut: Amount.Draw(t, "turns"),
		}
	})
)

// OneOrNone generates one of the given values, or the zero value.
func OneOrNone[K ~string](t *rapid.T, name string, values ...K) K {
	return rapid.SampledFrom(append(values, "")).Draw(t, name)
}

// RoundTrip checks that from is the inverse of to, also after encoding and decoding the message.
func RoundTrip[G any, P proto.Message](t *testing.T, values *rapid.Generator[G], to func(G) P, from func(G, P) G) {
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

// WithoutOriginal adapts a conversion that does not need the original value to RoundTrip. Conversions of requests
// need the original value, because it contains the tenant.
func WithoutOriginal[G, P any](from func(P) G) func(G, P) G {
	return func(_ G, p P) G { return from(p) }
}
