package selection

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomSource draws random inputs.
type randomSource struct{ *rand.Rand }

func (r randomSource) intUpTo(n int) int { return r.IntN(n + 1) }

func (r randomSource) oneOf(of ...string) string { return of[r.IntN(len(of))] }

func (r randomSource) newInput() Input {
	in := Input{Session: fmt.Sprint("session-", r.intUpTo(99)), Counter: r.Uint64() >> r.intUpTo(63), Policy: r.newPolicy()}
	candidates := make([]Candidate, r.intUpTo([]int{0, 3, 9, 30}[r.IntN(4)]))
	for i := range candidates {
		candidates[i] = Candidate{
			ID: fmt.Sprintf("b-%02d", i), Version: r.oneOf("", "v1", "v2", "v3"), Incarnation: int64(r.intUpTo(2)),
			InFlight: int32(r.intUpTo(5)), Capacity: int32(r.intUpTo(6)), Class: CandidateClass(max(0, r.intUpTo(6)-4)),
		}
		for _, can := range []string{"audio", "gpu", "maps"} {
			if r.intUpTo(1) == 0 {
				candidates[i].Capabilities = append(candidates[i].Capabilities, can)
			}
		}
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int { return int(a.Class) - int(b.Class) })
	in.Candidates, in.Sizes = candidates, PrepareCandidates(candidates)
	for _, c := range candidates {
		if r.intUpTo(3) == 0 {
			if in.Excluded == nil {
				in.Excluded = map[string]Rejected{}
			}
			in.Excluded[c.ID] = Rejected{ID: c.ID, Incarnation: int64(r.intUpTo(2)), Availability: Lost + Availability(r.intUpTo(3)), Detail: r.oneOf("", "no")}
		}
	}
	for i := range r.intUpTo(12) {
		in.Withheld = append(in.Withheld, Rejected{ID: fmt.Sprint("w-", i), Availability: Paused + Availability(r.intUpTo(3))})
	}
	return in
}

func (r randomSource) newPolicy() Policy {
	p := Policy{Strategy: Strategies()[r.IntN(len(Strategies()))]}
	switch p.Strategy {
	case Weighted:
		p.Weights = map[string]int{"v1": r.intUpTo(50), r.oneOf("v2", "v9"): r.intUpTo(50)}
	case Priority:
		p.Priorities = map[string]int{"v1": r.intUpTo(4) - 2, "v2": r.intUpTo(4) - 2}
	case Manual:
		p.Instance, p.Fallback = r.oneOf("b-00", "b-05", "w-3", "w-11", "z"), Strategy(r.oneOf("", "round_robin", "load_balanced", "sticky"))
	case Capability:
		p.Needs = []string{"gpu", "maps", "audio"}[:r.intUpTo(3)]
		if len(p.Needs) == 0 {
			p.Needs = nil
		}
	default:
		p.Strategy = Strategy(r.oneOf(string(p.Strategy), ""))
	}
	return p
}

func encodeJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func decodeJSON[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

const inputCount = 10_000

// Deciding again with the input of a decision gives the same decision. This holds for the whole input and for the
// part that the decision records (contract OC-18, C-15).
func TestDecide_RecordedInputLeadsToTheSameDecision(t *testing.T) {
	r := randomSource{rand.New(rand.NewPCG(7, 1))}
	for range inputCount {
		in := r.newInput()
		d := Decide(in)
		read := decodeJSON[Decision](t, encodeJSON(t, d))
		require.Equal(t, d, read, "nothing is lost when it is written down")
		require.Equal(t, d, Decide(read.Input), "the record")
		require.Equal(t, d, Decide(decodeJSON[Input](t, encodeJSON(t, in))), "the input")
		require.LessOrEqual(t, len(d.Input.Candidates), maxChoices+maxRejected+len(in.Policy.Weights)+1)
		require.LessOrEqual(t, len(d.Input.Withheld), maxRejected)
	}
}

// Every decision records its target, a reason, alternatives and rejected instances.
// Req: OC-12, OC-15
func TestDecide_RecordsTargetReasonAndAlternatives(t *testing.T) {
	r := randomSource{rand.New(rand.NewPCG(7, 2))}
	withoutTarget := 0
	for range inputCount {
		in := r.newInput()
		d := Decide(in)
		require.Contains(t, Strategies(), d.Strategy)
		require.Contains(t, []DecisionType{Selection, StandIn}, d.Type)
		require.Greater(t, len(d.Reason), 10)
		require.True(t, d.Confidence >= 0 && d.Confidence <= 1)
		require.LessOrEqual(t, len(d.Rejected), maxRejected)
		chosen := append([]string{d.Target}, d.Alternatives...)
		for _, out := range d.Rejected {
			require.NotContains(t, chosen, out.ID)
			require.NotZero(t, out.Availability)
		}
		if d.Target == "" {
			withoutTarget++
			require.Empty(t, d.Alternatives)
			require.Empty(t, d.Fallback)
			continue
		}
		require.Positive(t, d.Confidence)
		require.NotEqual(t, d.Target, d.Fallback)
		require.Equal(t, d.Fallback, append(chosen, "")[1])
		require.LessOrEqual(t, len(chosen), maxChoices)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(chosen))), len(chosen), "each once")
		for _, id := range chosen {
			i := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.ID == id })
			c := in.Candidates[i]
			require.Less(t, c.InFlight, c.Capacity)
			out, ok := in.Excluded[id]
			require.False(t, ok && out.Incarnation == c.Incarnation)
		}
	}
	require.Less(t, withoutTarget, inputCount/2, "otherwise the test proves nothing")
}

// When an instance rejects the step, the fallback is tried next. Each instance is tried only once.
func TestDecide_SelectsTheFallbackAfterARejection(t *testing.T) {
	r := randomSource{rand.New(rand.NewPCG(7, 3))}
	for range inputCount / 10 {
		in := r.newInput()
		if in.Excluded == nil {
			in.Excluded = map[string]Rejected{}
		}
		asked := map[string]bool{}
		for d := Decide(in); d.Target != ""; {
			require.False(t, asked[d.Target])
			asked[d.Target] = true
			i := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.ID == d.Target })
			in.Excluded[d.Target] = Rejected{ID: d.Target, Incarnation: in.Candidates[i].Incarnation, Availability: RejectedStep}
			next := Decide(in)
			require.Equal(t, d.Fallback, next.Target)
			d = next
		}
	}
}
