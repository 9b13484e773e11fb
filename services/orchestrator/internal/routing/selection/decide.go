package selection

import (
	"maps"
	"slices"
)

// Decide selects the candidate that gets the step. Its time grows with the number of candidates, by a few
// nanoseconds each. Its memory use does not grow.  If the target does not accept the step, add it to Excluded and
// decide again with the same counter. The next target is then the Fallback, unless loads have changed.
func Decide(in Input) Decision {
	s := surveyCandidates(&in)
	d := Decision{Type: Selection, Strategy: in.Policy.strategy(), Rejected: s.rejectedCandidates(), Input: s.record()}
	if s.free.n == 0 {
		d.Reason, d.MaybeLater = s.noneReason(), s.tally[Full]+s.tally[Unresponsive]+s.tally[BreakerOpen]+s.tally[Refused] > 0
		return d
	}
	choices := s.choices()
	d.Target = s.candidate(choices[0]).ID
	for _, c := range choices[1:] {
		d.Alternatives = append(d.Alternatives, s.candidate(c).ID)
	}
	if len(d.Alternatives) > 0 {
		d.Fallback = d.Alternatives[0]
	}
	if s.isStandIn(choices[0]) {
		d.Type = StandIn
	}
	d.Reason, d.Confidence = s.reason(choices), s.confidence(d.Type)
	return d
}

// DecideToWait returns the decision for a step that must wait, because earlier steps of the queue try first.
func OthersFirst() Decision {
	return Decision{Reason: "other steps wait for a place, and come first", MaybeLater: true}
}

// rankedCandidate is a candidate with its rank.
type ranked struct {
	rank
	index        int32 // in the input
	availability Availability
}

// topCandidates keeps the candidates with the lowest ranks.
type topRanked struct {
	n     int
	items [maxRejected]ranked
}

// admits reports whether a candidate with rank r belongs among the first limit candidates.
func (t *topRanked) admits(r rank, limit int) bool {
	return t.n < limit || r.before(t.items[t.n-1].rank)
}

func (t *topRanked) add(g ranked, limit int) {
	if t.n == limit {
		t.n--
	}
	i := t.n
	for ; i > 0 && g.before(t.items[i-1].rank); i-- {
		t.items[i] = t.items[i-1]
	}
	t.items[i] = g
	t.n++
}

// all returns the kept candidates, best rank first.
func (t *topRanked) all() []ranked { return t.items[:t.n] }

// survey is the result of one pass over all candidates.
type survey struct {
	in      *Input
	ranking *ranking
	free    topRanked // candidates that can take the step
	out     topRanked // candidates that cannot
	tally   tally
}

func surveyCandidates(in *Input) *survey {
	s := &survey{in: in, ranking: newRanking(in)}
	for i := range in.Candidates {
		c := &in.Candidates[i]
		why, kept, limit := s.availability(c), &s.free, maxChoices
		if why != Available {
			kept, limit = &s.out, maxRejected
		}
		s.tally[why]++
		if r := s.ranking.rankOf(c); kept.admits(r, limit) {
			kept.add(ranked{r, int32(i), why}, limit)
		}
	}
	for _, w := range in.Withheld {
		s.tally[w.Availability]++
	}
	for why, n := range in.Omitted {
		s.tally[why] += n
	}
	return s
}

func (s *survey) candidate(g ranked) *Candidate { return &s.in.Candidates[g.index] }

func (s *survey) availability(c *Candidate) Availability {
	if s.ranking.restricts {
		if why := s.ranking.restriction(c); why != Available {
			return why
		}
	}
	if len(s.in.Excluded) > 0 {
		if out, ok := s.in.Excluded[c.ID]; ok && out.Incarnation == c.Incarnation {
			return out.Availability
		}
	}
	if c.InFlight >= c.Capacity {
		return Full
	}
	return Available
}

// choices returns the first candidates, in the order in which they are tried. If the strategy compares loads, the
// less busy of the first two comes first. Then comes the less busy of the remaining one and the third, and so on.
func (s *survey) choices() []ranked {
	all := s.free.all()
	for i := range len(all) - 1 {
		if s.ranking.comparesLoads(all[i].rank, all[i+1].rank) && isBusier(s.candidate(all[i]), s.candidate(all[i+1])) {
			all[i], all[i+1] = all[i+1], all[i]
		}
	}
	return all
}

// isStandIn reports whether the strategy would prefer a rejected candidate to the chosen one.
func (s *survey) isStandIn(choice ranked) bool {
	if s.ranking.manual.id != "" {
		return s.candidate(choice).ID != s.ranking.manual.id
	}
	return s.out.n > 0 && s.ranking.prefers(s.out.items[0].rank, choice.rank)
}

func (s *survey) confidence(t Type) float64 {
	switch {
	case s.ranking.strategy == Capability && s.ranking.manual.id == "":
		return s.score(&s.free.items[0])
	case t == StandIn:
		return GuessedConfidence
	case s.tally[Available] == 1:
		return CertainConfidence
	case s.ranking.strategy == RoundRobin && s.ranking.manual.id == "":
		return GuessedConfidence
	case s.ranking.strategy == LoadBalanced && s.ranking.manual.id == "", s.ranking.strategy == Weighted:
		return InformedConfidence
	default:
		return CertainConfidence
	}
}

// capabilityScore returns the share of the needed capabilities that the chosen candidate has (OC-17).
func (s *survey) score(choice *ranked) float64 {
	if len(s.ranking.needs) == 0 {
		return GuessedConfidence
	}
	return float64(s.ranking.countMet(s.candidate(*choice))) / float64(len(s.ranking.needs))
}

// rejectedCandidates returns the rejected candidates with the best ranks, followed by withheld instances.
func (s *survey) rejectedCandidates() (all []Rejected) {
	for _, g := range s.out.all() {
		c := s.candidate(g)
		out := Rejected{ID: c.ID, Incarnation: c.Incarnation, Availability: g.availability}
		if known := s.in.Excluded[c.ID]; known.Availability == g.availability {
			out.Detail = known.Detail
		}
		all = append(all, out)
	}
	withheld := s.withheld()
	return append(all, withheld[:min(len(withheld), maxRejected-len(all))]...)
}

// namedWithheld returns the withheld instances that the decision lists. The instance that a manual policy names
// comes first.
func (s *survey) withheld() (few []Rejected) {
	if s.ranking.manual.id != "" {
		for _, w := range s.in.Withheld {
			if w.ID == s.ranking.manual.id {
				few = append(few, w)
			}
		}
	}
	for _, w := range s.in.Withheld {
		if len(few) == maxRejected {
			break
		}
		if s.ranking.manual.id == "" || w.ID != s.ranking.manual.id {
			few = append(few, w)
		}
	}
	return few
}

// recordedInput returns the part of the input that is needed to repeat the decision.
func (s *survey) record() Input {
	in := *s.in
	var kept []int32
	for _, few := range [][]ranked{s.free.all(), s.out.all()} {
		for _, g := range few {
			kept = append(kept, g.index)
		}
	}
	for _, i := range s.ranking.shares.firsts { // keeps the shares of the versions the same
		if i >= 0 {
			kept = append(kept, int32(i))
		}
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)

	left := s.tally
	in.Candidates, in.Excluded, in.Omitted = nil, nil, nil
	if len(kept) > 0 {
		in.Candidates = make([]Candidate, 0, len(kept))
	}
	for _, i := range kept {
		c := s.in.Candidates[i]
		left[s.availability(&s.in.Candidates[i])]--
		if out, ok := s.in.Excluded[c.ID]; ok {
			if in.Excluded == nil {
				in.Excluded = map[string]Rejected{}
			}
			in.Excluded[c.ID] = out
		}
		c.hash, c.kind, c.skill = 0, 0, 0
		in.Candidates = append(in.Candidates, c)
	}
	in.Withheld = s.withheld()
	for _, w := range in.Withheld {
		left[w.Availability]--
	}
	for why, n := range left {
		if n > 0 {
			if in.Omitted == nil {
				in.Omitted = map[Availability]int{}
			}
			in.Omitted[Availability(why)] = n
		}
	}
	in.Policy.Weights, in.Policy.Priorities = maps.Clone(in.Policy.Weights), maps.Clone(in.Policy.Priorities)
	return in
}
