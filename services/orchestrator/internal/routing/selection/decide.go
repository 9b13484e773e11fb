package selection

import (
	"maps"
	"slices"
)

// Decide selects the candidate that gets the step. Its time grows with the number of candidates, by a few
// nanoseconds each. Its memory use does not grow.
//
// If the target does not accept the step, add it to Excluded and decide again with the same counter. The next
// target is then the Fallback, unless loads have changed.
func Decide(in Input) Decision {
	s := surveyCandidates(&in)
	d := Decision{Type: Selection, Strategy: in.Policy.strategy(), Rejected: s.rejectedCandidates(), Input: s.recordedInput()}
	if s.available.count == 0 {
		d.Reason, d.MaySucceedLater = s.describeNoTarget(), s.tally[Full]+s.tally[Unresponsive]+s.tally[BreakerOpen]+s.tally[RejectedStep] > 0
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
	d.Reason, d.Confidence = s.describeTarget(choices), s.confidence(d.Type)
	return d
}

// DecideToWait returns the decision for a step that must wait, because earlier steps of the queue try first.
func DecideToWait() Decision {
	return Decision{Reason: "other steps wait for a place, and come first", MaySucceedLater: true}
}

// rankedCandidate is a candidate with its rank.
type rankedCandidate struct {
	rank
	index        int32 // index in Input.Candidates
	availability Availability
}

// topCandidates keeps the candidates with the lowest ranks.
type topCandidates struct {
	count int
	items [maxRejected]rankedCandidate
}

// admits reports whether a candidate with rank r belongs among the first limit candidates.
func (t *topCandidates) admits(r rank, limit int) bool {
	return t.count < limit || r.before(t.items[t.count-1].rank)
}

func (t *topCandidates) add(g rankedCandidate, limit int) {
	if t.count == limit {
		t.count--
	}
	i := t.count
	for ; i > 0 && g.before(t.items[i-1].rank); i-- {
		t.items[i] = t.items[i-1]
	}
	t.items[i] = g
	t.count++
}

// all returns the kept candidates, best rank first.
func (t *topCandidates) all() []rankedCandidate { return t.items[:t.count] }

// survey is the result of one pass over all candidates.
type survey struct {
	in        *Input
	ranking   *ranking
	available topCandidates // candidates that can take the step
	rejected  topCandidates // candidates that cannot
	tally     tally
}

func surveyCandidates(in *Input) *survey {
	s := &survey{in: in, ranking: newRanking(in)}
	for i := range in.Candidates {
		c := &in.Candidates[i]
		why, kept, limit := s.availability(c), &s.available, maxChoices
		if why != Available {
			kept, limit = &s.rejected, maxRejected
		}
		s.tally[why]++
		if r := s.ranking.rankOf(c); kept.admits(r, limit) {
			kept.add(rankedCandidate{r, int32(i), why}, limit)
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

func (s *survey) candidate(g rankedCandidate) *Candidate { return &s.in.Candidates[g.index] }

func (s *survey) availability(c *Candidate) Availability {
	if s.ranking.hasRestrictions {
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
func (s *survey) choices() []rankedCandidate {
	all := s.available.all()
	for i := range len(all) - 1 {
		if s.ranking.comparesLoads(all[i].rank, all[i+1].rank) && isBusier(s.candidate(all[i]), s.candidate(all[i+1])) {
			all[i], all[i+1] = all[i+1], all[i]
		}
	}
	return all
}

// isStandIn reports whether the strategy would prefer a rejected candidate to the chosen one.
func (s *survey) isStandIn(choice rankedCandidate) bool {
	if s.ranking.manual.id != "" {
		return s.candidate(choice).ID != s.ranking.manual.id
	}
	return s.rejected.count > 0 && s.ranking.prefers(s.rejected.items[0].rank, choice.rank)
}

func (s *survey) confidence(t DecisionType) float64 {
	switch {
	case s.ranking.strategy == Capability && s.ranking.manual.id == "":
		return s.capabilityScore(&s.available.items[0])
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
func (s *survey) capabilityScore(choice *rankedCandidate) float64 {
	if len(s.ranking.needs) == 0 {
		return GuessedConfidence
	}
	return float64(s.ranking.countMetNeeds(s.candidate(*choice))) / float64(len(s.ranking.needs))
}

// rejectedCandidates returns the rejected candidates with the best ranks, followed by withheld instances.
func (s *survey) rejectedCandidates() (all []Rejected) {
	for _, g := range s.rejected.all() {
		c := s.candidate(g)
		out := Rejected{ID: c.ID, Incarnation: c.Incarnation, Availability: g.availability}
		if known := s.in.Excluded[c.ID]; known.Availability == g.availability {
			out.Detail = known.Detail
		}
		all = append(all, out)
	}
	withheld := s.namedWithheld()
	return append(all, withheld[:min(len(withheld), maxRejected-len(all))]...)
}

// namedWithheld returns the withheld instances that the decision lists. The instance that a manual policy names
// comes first.
func (s *survey) namedWithheld() (few []Rejected) {
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
func (s *survey) recordedInput() Input {
	in := *s.in
	var kept []int32
	for _, few := range [][]rankedCandidate{s.available.all(), s.rejected.all()} {
		for _, g := range few {
			kept = append(kept, g.index)
		}
	}
	for _, i := range s.ranking.shares.firstCandidates { // keeps the shares of the versions the same
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
		c.hash, c.versionNumber, c.capabilitySet = 0, 0, 0
		in.Candidates = append(in.Candidates, c)
	}
	in.Withheld = s.namedWithheld()
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
