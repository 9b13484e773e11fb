package ownership

// Protocol says what happens to a change of SHARED configuration that others changed meanwhile (SO-11). There is no
// protocol in which the last writer wins.
type Protocol string

// The protocols.
const (
	// Reject rejects the change.
	Reject Protocol = "reject"
	// Merge applies the change if no other writer changed the same keys, and rejects it otherwise. It needs to be the
	// protocol of the previous writer as well.
	Merge Protocol = "merge"
)

// IsValid reports whether p is one of the protocols.
func (p Protocol) IsValid() bool { return p == Reject || p == Merge }
