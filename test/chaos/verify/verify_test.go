package verify_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// names returns the names of the checks that found a violation.
func names(found []violation.Violation) (all []string) {
	for _, v := range found {
		all = append(all, v.Check)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func event(sequence uint64, attempt int32, payload any) *troupev1.Event {
	e := &troupev1.Event{Sequence: sequence, Step: 1, Attempt: attempt, InstanceId: fmt.Sprintf("w%d", attempt)}
	switch p := payload.(type) {
	case *troupev1.TurnStarted:
		e.Payload = &troupev1.Event_TurnStarted{TurnStarted: p}
	case *troupev1.StepStarted:
		e.Payload = &troupev1.Event_StepStarted{StepStarted: p}
	case *troupev1.TextRetracted:
		e.Payload = &troupev1.Event_TextRetracted{TextRetracted: p}
	case *troupev1.TurnResult:
		e.Payload = &troupev1.Event_TurnResult{TurnResult: p}
	case string: // text
		e.Payload = &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: p}}
	case []string: // the committed text
		e.Payload = &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: &troupev1.StepResult{Step: 1, Text: p[0]}}}
	}
	return e
}

// stream returns a stream whose first attempt was lost in the middle of the answer.
func stream() verify.Stream {
	return verify.Stream{Mark: "s/r", IsFirst: true, EndedWithoutError: true, Events: []*troupev1.Event{
		event(1, 0, &troupev1.TurnStarted{}),
		event(2, 1, &troupev1.StepStarted{}),
		event(0, 1, "an ans"),
		event(3, 1, &troupev1.TextRetracted{}),
		event(4, 2, &troupev1.StepStarted{}),
		event(0, 2, "an ans"), event(0, 2, "wer"),
		event(5, 2, []string{"an answer"}),
		event(6, 0, &troupev1.TurnResult{}),
	}}
}

func TestCheckStreams_FindsViolationsOfOneStream(t *testing.T) {
	require.Empty(t, verify.CheckStreams([]verify.Stream{stream()}))
	for name, c := range map[string]struct {
		spoil func(*verify.Stream)
		want  []string
	}{
		"a missing event": {
			func(s *verify.Stream) { s.Events = slices.Delete(s.Events, 3, 4) },
			[]string{verify.StreamAttemptsGrow, verify.StreamContiguous, verify.StreamTextCommitted},
		},
		"an event twice": {func(s *verify.Stream) { s.Events = slices.Insert(s.Events, 1, s.Events[0]) }, []string{verify.StreamContiguous}},
		"numbers that begin anew": {func(s *verify.Stream) { s.Events[4] = event(1, 2, &troupev1.StepStarted{}) }, []string{
			verify.StreamContiguous,
			verify.StreamSameForAll,
		}},
		"two ends": {
			func(s *verify.Stream) { s.Events = append(s.Events, event(7, 0, &troupev1.TurnResult{})) },
			[]string{verify.StreamEndsOnce},
		},
		"no end":                   {func(s *verify.Stream) { s.Events = s.Events[:8] }, []string{verify.StreamEndsOnce}},
		"something behind the end": {func(s *verify.Stream) { s.Events = append(s.Events, event(0, 2, "late")) }, []string{verify.StreamEndsOnce}},
		"no reset": {
			func(s *verify.Stream) { s.Events[3] = event(3, 1, &troupev1.TurnStarted{}) },
			[]string{verify.StreamAttemptsGrow, verify.StreamTextCommitted},
		},
		"the same attempt again": {func(s *verify.Stream) { s.Events[4] = event(4, 1, &troupev1.StepStarted{}) }, []string{verify.StreamAttemptsGrow}},
		"other text":             {func(s *verify.Stream) { s.Events[6] = event(0, 2, "wers") }, []string{verify.StreamTextCommitted}},
		"text lost":              {func(s *verify.Stream) { s.Events = slices.Delete(s.Events, 5, 6) }, []string{verify.StreamTextCommitted}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stream()
			c.spoil(&s)
			require.Equal(t, c.want, names(verify.CheckStreams([]verify.Stream{s})))
		})
	}
}

// A stream that begins later, or after a sequence, receives the remaining events only.
func TestCheckStreams_StreamsOfOneTurnAreEqual(t *testing.T) {
	later := stream()
	later.IsFirst = false
	later.Events = slices.Delete(slices.Clone(later.Events), 5, 6)
	resumed := verify.Stream{Mark: "s/r", After: 3, EndedWithoutError: true, Events: stream().Events[4:]}
	require.Empty(t, verify.CheckStreams([]verify.Stream{stream(), later, resumed}))

	later.Events[0] = event(1, 0, &troupev1.TurnStarted{Text: "another"})
	require.Equal(t, []string{verify.StreamSameForAll}, names(verify.CheckStreams([]verify.Stream{stream(), later})))
}

func TestCheckEffects_FindsViolationsInTheLedger(t *testing.T) {
	call := func(kind ledger.Kind, number int, worker string) ledger.Call {
		c := ledger.Call{Kind: kind, Mark: "s/r", Step: 1, Number: number, Worker: worker}
		if kind != ledger.Model {
			c.Key = "key of " + string(kind)
		}
		return c
	}
	// The first attempt was lost after it had called the tool that may run only once.
	good := []ledger.Call{
		call(ledger.Model, 1, "w1"), call(ledger.Read, 0, "w1"), call(ledger.Model, 2, "w1"),
		call(ledger.Idempotent, 0, "w1"), call(ledger.Model, 3, "w1"), call(ledger.AtMostOnce, 0, "w1"),
		call(ledger.Model, 4, "w2"),
	}
	said := "s/r step 1: read#2 | idempotent#4 | at_most_once#6"
	attempts := verify.AttemptsFromStreams([]verify.Stream{stream()})
	for name, c := range map[string]struct {
		more  []ledger.Call
		spoil func([]ledger.Call)
		said  string
		want  []string
	}{
		"nothing":                 {},
		"an outcome in doubt":     {said: "s/r step 1: read#2 | idempotent#4 | UNKNOWN_OUTCOME: it is not known."},
		"idempotent, again":       {more: []ledger.Call{call(ledger.Idempotent, 0, "w1")}},
		"once, twice":             {more: []ledger.Call{call(ledger.AtMostOnce, 0, "w2")}, want: []string{verify.EffectAtMostOnce}},
		"a journaled tool again":  {more: []ledger.Call{call(ledger.Read, 0, "w2")}, want: []string{verify.EffectNotRepeated}},
		"a journaled reply again": {more: []ledger.Call{call(ledger.Model, 1, "w2")}, want: []string{verify.EffectNotRepeated}},
		"a late call of a zombie": {more: []ledger.Call{call(ledger.Read, 0, "w1")}},
		"two keys": {
			more: []ledger.Call{{Kind: ledger.Idempotent, Mark: "s/r", Step: 1, Key: "other", Worker: "w1"}},
			want: []string{verify.EffectKeepsKey},
		},
		"no key":                   {spoil: func(c []ledger.Call) { c[3].Key = "" }, want: []string{verify.EffectKeepsKey}},
		"an unknown result":        {said: "s/r step 1: read#2 | idempotent#4 | at_most_once#9", want: []string{verify.EffectInLedger}},
		"a result of another call": {said: "s/r step 1: read#2 | idempotent#2 | at_most_once#6", want: []string{verify.EffectInLedger}},
		"an unknown request":       {more: []ledger.Call{{Kind: ledger.Model, Mark: "s/x", Step: 1, Number: 1}}, want: []string{verify.EffectUnrequested}},
	} {
		t.Run(name, func(t *testing.T) {
			calls := append(slices.Clone(good), c.more...)
			if c.spoil != nil {
				c.spoil(calls)
			}
			if c.said == "" {
				c.said = said
			}
			found := verify.CheckEffects(calls, attempts, []verify.CommittedStep{{Mark: "s/r", Step: 1, Text: c.said}}, map[string]bool{"s/r": true})
			require.Equal(t, c.want, names(found), "%v", found)
		})
	}
}

func TestCheckHistory_FindsViolations(t *testing.T) {
	message := func(sequence int64, role troupev1.Role, text string) *troupev1.Message {
		return &troupev1.Message{Sequence: sequence, Role: role, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: text}}}}
	}
	user, agent := troupev1.Role_ROLE_USER, troupev1.Role_ROLE_ASSISTANT
	whole := func() []*troupev1.Message {
		return []*troupev1.Message{
			message(1, user, "s/1"), message(2, agent, "a"), message(3, user, "s/failed"),
			message(4, user, "s/2"), message(5, agent, "b"), message(6, agent, "c"),
		}
	}
	acknowledged := []verify.AcknowledgedTurn{{"s/1", []string{"a"}}, {"s/2", []string{"b", "c"}}}
	require.Empty(t, verify.CheckHistory("s", whole(), acknowledged))
	for name, spoil := range map[string]func([]*troupev1.Message) []*troupev1.Message{
		"a lost answer":  func(m []*troupev1.Message) []*troupev1.Message { return m[:5] },
		"a lost turn":    func(m []*troupev1.Message) []*troupev1.Message { return m[:3] },
		"a turn twice":   func(m []*troupev1.Message) []*troupev1.Message { return append(m, message(7, user, "s/2")) },
		"a hole":         func(m []*troupev1.Message) []*troupev1.Message { m[5].Sequence = 7; return m },
		"another answer": func(m []*troupev1.Message) []*troupev1.Message { m[1] = message(2, agent, "x"); return m },
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, []string{verify.HistoryComplete}, names(verify.CheckHistory("s", spoil(whole()), acknowledged)))
		})
	}
}

func TestCheckKeys_RejectsKeysWithoutATier(t *testing.T) {
	require.Empty(t, verify.CheckKeys([]string{"m:{/s}:meta", "o:{/t}:tr"}))
	require.Equal(t, []string{verify.KeyOwnership}, names(verify.CheckKeys([]string{"session:1"})))
}

func TestCountFaults_CountsTheFaultsOfARun(t *testing.T) {
	s := stream()
	s.Events[7] = event(5, 2, []string{"s/r step 1: read#1 | idempotent#2 | UNKNOWN_OUTCOME: it is not known."})
	calls := []ledger.Call{{Kind: ledger.Read, Worker: "w1"}, {Kind: ledger.Idempotent, Worker: "w2"}}
	require.Equal(t, verify.FaultCounts{Takeovers: 1, Retractions: 1, ReplayedResults: 1, InDoubt: 1}, verify.CountFaults([]verify.Stream{s, s}, calls))
}
