package ownership

// Protocol says what becomes of a change of SHARED configuration that others changed meanwhile
// (SO-11). It is never that whoever writes last is right.
type Protocol string

// The protocols.
const (
	// Reject refuses the change.
	Reject Protocol = "reject"
	// Merge makes it when nobody else changed the same keys, and else refuses it. It is used
	// where the last writer and this one both said so.
	Merge Protocol = "merge"
)

// Known reports whether there is such a protocol.
func (p Protocol) Known() bool { return p == Reject || p == Merge }
