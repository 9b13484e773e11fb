package selection

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// dice draws random inputs.
type dice struct{ *rand.Rand }

func (r dice) upTo(n int) int { return r.IntN(n + 1) }

func (r dice) one(of ...string) string { return of[r.IntN(len(of))] }

func (r dice) input() Input {
	in := Input{Session: fmt.Sprint("session-", r.upTo(99)), Counter: r.Uint64() >> r.upTo(63), Policy: r.policy()}
	candidates := make([]Candidate, r.upTo([]int{0, 3, 9, 30}[r.IntN(4)]))
	for i := range candidates {
		candidates[i] = Candidate{
			ID: fmt.Sprintf("b-%02d", i), Version: r.one("", "v1", "v2", "v3"), Incarnation: int64(r.upTo(2)),
			InFlight: int32(r.upTo(5)), Capacity: int32(r.upTo(6)), Class: Class(max(0, r.upTo(6)-4)),
		}
		for _, can := range []string{"audio", "gpu", "maps"} {
			if r.upTo(1) == 0 {
				candidates[i].Capabilities = append(candidates[i].Capabilities, can)
			}
		}
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int { return int(a.Class) - int(b.Class) })
	in.Candidates, in.Sizes = candidates, Arrange(candidates)
	for _, c := range candidates {
		if r.upTo(3) == 0 {
			if in.Excluded == nil {
				in.Excluded = map[string]Rejected{}
			}
			in.Excluded[c.ID] = Rejected{ID: c.ID, Incarnation: int64(r.upTo(2)), Availability: Lost + Availability(r.upTo(3)), Detail: r.one("", "no")}
		}
	}
	for i := range r.upTo(12) {
		in.Withheld = append(in.Withheld, Rejected{ID: fmt.Sprint("w-", i), Availability: Paused + Availability(r.upTo(3))})
	}
	return in
}

func (r dice) policy() Policy {
	p := Policy{Strategy: Strategies()[r.IntN(len(Strategies()))]}
	switch p.Strategy {
	case Weighted:
		p.Weights = map[string]int{"v1": r.upTo(50), r.one("v2", "v9"): r.upTo(50)}
	case Priority:
		p.Priorities = map[string]int{"v1": r.upTo(4) - 2, "v2": r.upTo(4) - 2}
	case Manual:
		p.Instance, p.Fallback = r.one("b-00", "b-05", "w-3", "w-11", "z"), Strategy(r.one("", "round_robin", "load_balanced", "sticky"))
	case Capability:
		p.Needs = []string{"gpu", "maps", "audio"}[:r.upTo(3)]
		if len(p.Needs) == 0 {
			p.Needs = nil
		}
	default:
		p.Strategy = Strategy(r.one(string(p.Strategy), ""))
	}
	return p
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

const inputs = 10_000

// Deciding again with the input of a decision gives the same decision. This holds for the whole input and for the
// part that the decision records (contract OC-18, C-15).
func TestDecide_RecordedInputLeadsToTheSameDecision(t *testing.T) {
	r := dice{rand.New(rand.NewPCG(7, 1))}
	for range inputs {
		in := r.input()
		d := Decide(in)
		read := decode[Decision](t, encode(t, d))
		require.Equal(t, d, read, "nothing is lost when it is written down")
		require.Equal(t, d, Decide(read.Input), "the record")
		require.Equal(t, d, Decide(decode[Input](t, encode(t, in))), "the input")
		require.LessOrEqual(t, len(d.Input.Candidates), maxChoices+maxRejected+len(in.Policy.Weights)+1)
		require.LessOrEqual(t, len(d.Input.Withheld), maxRejected)
	}
}

// Every decision records its target, a reason, alternatives and rejected instances.
// Req: OC-12, OC-15
func TestDecide_NamesTargetReasonAndAlternatives(t *testing.T) {
	r := dice{rand.New(rand.NewPCG(7, 2))}
	withoutTarget := 0
	for range inputs {
		in := r.input()
		d := Decide(in)
		require.Contains(t, Strategies(), d.Strategy)
		require.Contains(t, []Type{Selection, StandIn}, d.Type)
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
	require.Less(t, withoutTarget, inputs/2, "otherwise the test proves nothing")
}

// When an instance rejects the step, the fallback is tried next. Each instance is tried only once.
func TestDecide_SelectsTheFallbackAfterARejection(t *testing.T) {
	r := dice{rand.New(rand.NewPCG(7, 3))}
	for range inputs / 10 {
		in := r.input()
		if in.Excluded == nil {
			in.Excluded = map[string]Rejected{}
		}
		asked := map[string]bool{}
		for d := Decide(in); d.Target != ""; {
			require.False(t, asked[d.Target])
			asked[d.Target] = true
			i := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.ID == d.Target })
			in.Excluded[d.Target] = Rejected{ID: d.Target, Incarnation: in.Candidates[i].Incarnation, Availability: Refused}
			next := Decide(in)
			require.Equal(t, d.Fallback, next.Target)
			d = next
		}
	}
}
