package wire

import (
	"maps"
	"math"
	"slices"
	"testing"

	"buf.build/go/protovalidate"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/wire/wiretest"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMessage_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, wiretest.Message, MessageToProto, wiretest.WithoutOriginal(MessageFromProto))
}

func TestResult_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, wiretest.Result, ResultToProto, wiretest.WithoutOriginal(ResultFromProto))
}

func TestMessageFromProto_JoinsTextParts(t *testing.T) {
	part := func(text string) *troupev1.Part { return &troupev1.Part{Content: &troupev1.Part_Text{Text: text}} }
	m := MessageFromProto(&troupev1.Message{Parts: []*troupev1.Part{part("one "), part("two")}})
	require.Equal(t, "one two", m.Text)
	require.Empty(t, MessageFromProto(nil))
}

// Every value of these protobuf enums is in its conversion table, so a value added to a .proto must be added to
// the table too.
func TestEnums_CoverEveryValue(t *testing.T) {
	for _, values := range []struct {
		enum  protoreflect.Enum
		known int
	}{
		{troupev1.Role(0), len(messageRoles) + 1},
		{troupev1.ToolEffect(0), len(toolEffects) + 1},
		{troupev1.JournalPhase(0), len(journalPhases) + 1},
		{troupev1.ToolStatus(0), len(toolStatuses) + 1},
		{troupev1.CallNeed(0), len(pendingNeeds) + 1},
		{troupev1.CallVerdict(0), len(callVerdicts) + 1},
		{troupev1.BudgetPolicy(0), len(budgetPolicies) + 1},
	} {
		require.Equal(t, values.enum.Descriptor().Values().Len(), values.known, values.enum.Descriptor().FullName())
	}
	require.Equal(t, troupev1.Role_ROLE_UNSPECIFIED, MessageToProto(conversation.Message{Role: conversation.RoleSystem}).GetRole())
}

// An out-of-range amount from a provider or a remote turn is clamped, so that the step that reports it does not
// fail.
func TestUsageToProto_ClampsAmounts(t *testing.T) {
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

func TestEntry_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) execution.Entry {
		e := execution.Entry{
			Number: wiretest.Count.Draw(t, "number"),
			Phase:  wiretest.OneOrNone(t, "phase", execution.Intent, execution.Done),
			Digest: wiretest.Word.Draw(t, "digest"),
			Tool:   wiretest.Word.Draw(t, "tool"),
			Effect: wiretest.OneOrNone(t, "effect", execution.Read, execution.Idempotent, execution.AtMostOnce),
			Usage: execution.Usage{
				InputTokens: wiretest.Amount.Draw(t, "in"), OutputTokens: wiretest.Amount.Draw(t, "out"), ModelCalls: rapid.IntRange(0, maxCalls).Draw(t, "calls"),
				CostMicros: wiretest.Amount.Draw(t, "cost"), CachedTokens: wiretest.Amount.Draw(t, "cached"), CacheWriteTokens: wiretest.Amount.Draw(t, "kept"),
			},
			Incomplete: wiretest.OneOrNone(t, "incomplete", slices.Sorted(maps.Keys(incompleteReasons))...),
			Status:     string(wiretest.OneOrNone(t, "status", slices.Sorted(maps.Keys(toolStatuses))...)),
			Text:       wiretest.Word.Draw(t, "text"),
		}
		if rapid.Bool().Draw(t, "of a model") {
			e.Reply = wiretest.Message.Draw(t, "reply")
		}
		return e
	}), EntryToProto, wiretest.WithoutOriginal(EntryFromProto))
}
