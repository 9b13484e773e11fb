package selection

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
)

// rank is the sort key of a candidate. The lowest rank is tried first.
type rank struct {
	class    uint32 // first criterion: the class, combined with the strategy's own groups
	position int32  // last criterion: the position, starting at the candidate whose turn it is
	key      uint64
}

func (r rank) before(other rank) bool {
	switch {
	case r.class != other.class:
		return r.class < other.class
	case r.key != other.key:
		return r.key < other.key
	default:
		return r.position < other.position
	}
}

// ranking ranks the candidates of an input by one strategy. It looks at one candidate at a time and ignores how
// many others there are. So omitting candidates from a record does not change the order of the rest.
type ranking struct {
	strategy        Strategy
	manual          namedInstance
	seed            uint64
	hasRestrictions bool     // the policy excludes some candidates
	nextPosition    [3]int32 // position of the candidate whose turn it is, by class
	sizes           ClassSizes

	needs    []string  // needed capabilities under a capability policy
	versions []version // versions that the policy names
	shares   shares    // shares of the versions under a weighted policy

	versionIndexes   [maxNumberedValues]int // by version number of a candidate: 1 + index of its version (0 until it is looked up)
	metCounts        [maxNumberedValues]int // by capability set of a candidate: 1 + how many needs it meets (0 until it is counted)
	countedCandidate *Candidate             // the candidate without a capability set number that metCounts[0] belongs to
}

// namedInstance is the instance that a manual policy names.
type namedInstance struct {
	id          string
	hash        uint64
	isExclusive bool // no other candidate may get the step
}

// shares determines which version of the agent gets a step under a weighted policy.
type shares struct {
	drawnVersion    int      // index of the version that gets the step (-1 when none has a share)
	firstCandidates []int    // index of the first candidate of each version (-1 when there is none)
	groups          []uint32 // by version: the group in which it is tried
}

// version is a version that the policy names, with its weight or priority.
type version struct {
	name  string
	value int
}

func newRanking(in *Input) *ranking {
	o := &ranking{strategy: in.Policy.rankingStrategy(), sizes: in.Sizes, shares: shares{drawnVersion: -1}}
	if in.Policy.strategy() == Manual {
		o.manual = namedInstance{in.Policy.Instance, hash(in.Policy.Instance), in.Policy.Fallback == ""}
	}
	for class, n := range in.Sizes {
		if n > 0 {
			o.nextPosition[class] = int32(in.Counter % uint64(n))
		}
	}
	switch o.strategy {
	case Sticky:
		o.seed = hash(in.Session)
	case LoadBalanced:
		o.seed = mixBits(in.Counter ^ hash(in.Session))
	case Weighted:
		o.seed = mixBits(in.Counter ^ hash(in.Session))
		o.addVersions(in.Policy.Weights)
		o.drawVersion(in)
	case Priority:
		o.addVersions(in.Policy.Priorities)
	case Capability:
		o.needs = in.Policy.Needs
	default: // round robin
	}
	o.hasRestrictions = o.manual.isExclusive || len(o.shares.groups) > 0 || len(o.needs) > 0
	return o
}

func (o *ranking) addVersions(values map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		o.versions = append(o.versions, version{name, values[name]})
	}
}

// versionIndex returns the index of a version. All versions that the policy does not name get the index after the
// last one.
func (o *ranking) versionIndex(name string) int {
	for i := range o.versions {
		if o.versions[i].name == name {
			return i
		}
	}
	return len(o.versions)
}

// versionOf returns the version index of a candidate. It compares each version name only once.
func (o *ranking) versionOf(c *Candidate) int {
	if c.versionNumber == 0 {
		return o.versionIndex(c.Version)
	}
	if o.versionIndexes[c.versionNumber] == 0 {
		o.versionIndexes[c.versionNumber] = 1 + o.versionIndex(c.Version)
	}
	return o.versionIndexes[c.versionNumber] - 1
}

// isNamed reports whether the policy names the candidate.
func (o *ranking) isNamed(c *Candidate) bool {
	return (c.hash == 0 || c.hash == o.manual.hash) && c.ID == o.manual.id
}

// drawVersion selects the version that gets this step. Over as many steps as the shares add up to, each version
// with candidates gets exactly its share. The versions alternate evenly.
func (o *ranking) drawVersion(in *Input) {
	o.shares.firstCandidates = slices.Repeat([]int{-1}, len(o.versions)+1)
	missing := len(o.shares.firstCandidates)
	for i := 0; i < len(in.Candidates) && missing > 0; i++ {
		if v := o.versionOf(&in.Candidates[i]); o.shares.firstCandidates[v] < 0 {
			o.shares.firstCandidates[v] = i
			missing--
		}
	}
	total := 0
	for v := range o.shares.firstCandidates {
		total += o.versionShare(v)
	}
	if total > 0 {
		at := int(in.Counter%uint64(total)) * stride(total) % total
		for v := range o.shares.firstCandidates {
			if at -= o.versionShare(v); at < 0 {
				o.shares.drawnVersion = v
				break
			}
		}
	}
	for v := range o.shares.firstCandidates {
		o.shares.groups = append(o.shares.groups, o.versionGroup(v))
	}
}

// The groups of versions, in the order in which they are tried.
const (
	groupDrawn     = iota
	groupSharing   // gets other steps of its share
	groupShareless // no share is left for it
	groupExcluded  // gets no steps at all
)

func (o *ranking) versionGroup(v int) uint32 {
	switch {
	case v == o.shares.drawnVersion:
		return groupDrawn
	case v < len(o.versions) && o.versions[v].value <= 0:
		return groupExcluded
	case o.versionShare(v) > 0:
		return groupSharing
	default:
		return groupShareless
	}
}

// versionShare returns the percentage of steps that a version gets (0 if it has no candidate).
func (o *ranking) versionShare(v int) int {
	if o.shares.firstCandidates[v] < 0 {
		return 0
	}
	if v < len(o.versions) {
		return max(0, o.versions[v].value)
	}
	rest := 100
	for _, other := range o.versions {
		rest -= other.value
	}
	return max(0, rest)
}

// stride returns a step width that visits every number below n exactly once and keeps successive numbers far from
// each other.
func stride(n int) int {
	for s := max(1, n*5/8); ; s++ {
		a, b := s, n
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
}

// restriction returns why the policy excludes a candidate, independent of its load (Available if it does not).
func (o *ranking) restriction(c *Candidate) Availability {
	switch {
	case o.manual.isExclusive && !o.isNamed(c):
		return NotNamed
	case len(o.shares.groups) > 0 && o.shares.groups[o.versionOf(c)] == groupExcluded:
		return NoShare
	case len(o.needs) > 0 && o.countMetNeeds(c) == 0:
		return Unfit
	default:
		return Available
	}
}

// Weights of the criteria that are added up in rank.class.
const (
	classWeight   = 4 // outweighs what the strategy adds
	unnamedWeight = 4 * classWeight
)

func (o *ranking) rankOf(c *Candidate) rank {
	r := rank{class: uint32(c.Class) * classWeight, position: c.Position - o.nextPosition[c.Class]}
	if r.position < 0 {
		r.position += int32(o.sizes[c.Class])
	}
	switch o.strategy {
	case LoadBalanced:
		r.key = mixBits(o.seed ^ c.idHash())
	case Sticky: // rendezvous hashing: the instance with the highest hash gets the session
		r.key = ^mixBits(o.seed ^ c.idHash())
	case Weighted:
		r.class, r.key = r.class+o.shares.groups[o.versionOf(c)], mixBits(o.seed^c.idHash())
	case Priority:
		r.key = uint64(^(uint32(int32(o.priority(c)))^1<<31))<<32 | uint64(c.load())
	case Capability: // among equals always the first, without turns (OC-17)
		r.key, r.position = uint64(len(o.needs)-o.countMetNeeds(c))<<32, c.Position
	default: // the candidate whose turn it is
	}
	if o.manual.id != "" {
		r.class += unnamedWeight
		if o.isNamed(c) {
			r = rank{}
		}
	}
	return r
}

// countMetNeeds returns how many of the needed capabilities a candidate has. It compares the names only once for
// each numbered capability set.
func (o *ranking) countMetNeeds(c *Candidate) int {
	if o.metCounts[c.capabilitySet] == 0 || c.capabilitySet == 0 && c != o.countedCandidate {
		o.compareNeeds(c)
	}
	return o.metCounts[c.capabilitySet] - 1
}

// compareNeeds computes the result of countMetNeeds by comparing the names of capabilities.
func (o *ranking) compareNeeds(c *Candidate) {
	o.countedCandidate, o.metCounts[c.capabilitySet] = c, 1
	for _, need := range o.needs {
		if slices.Contains(c.Capabilities, need) {
			o.metCounts[c.capabilitySet]++
		}
	}
}

func (o *ranking) priority(c *Candidate) int {
	if v := o.versionOf(c); v < len(o.versions) {
		return o.versions[v].value
	}
	return 0
}

// prefers reports whether the strategy prefers a to b. Round robin and random draws express no preference.
func (o *ranking) prefers(a, b rank) bool {
	switch {
	case a.class != b.class && (o.manual.id != "" || o.strategy == Weighted):
		return a.class < b.class
	case o.strategy == Sticky:
		return a.before(b)
	case o.strategy == Priority || o.strategy == Capability:
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.key>>32, b.key>>32)) < 0
	default:
		return false
	}
}

// comparesLoads reports whether the strategy tries the less busy of two neighboring candidates first.
func (o *ranking) comparesLoads(a, b rank) bool {
	return (o.strategy == LoadBalanced || o.strategy == Weighted) && a.class == b.class
}

// isBusier reports whether a uses a larger share of its capacity than b.
func isBusier(a, b *Candidate) bool {
	return int64(a.InFlight)*int64(b.Capacity) > int64(b.InFlight)*int64(a.Capacity)
}

// load returns the used share of the capacity as a fixed-point number (1<<16 means full).
func (c *Candidate) load() uint32 {
	return uint32(int64(max(0, c.InFlight)) << 16 / int64(max(1, c.Capacity)))
}

func (c *Candidate) idHash() uint64 {
	if c.hash == 0 {
		return hash(c.ID)
	}
	return c.hash
}

// hash returns the same value in every process. So all orchestrators send a session to the same instance.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return mixBits(h.Sum64())
}

// mixBits scrambles a number, so that neighboring numbers map to very different ones.
func mixBits(x uint64) uint64 {
	high, low := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	x = high ^ low
	high, low = bits.Mul64(x^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return high ^ low
}
