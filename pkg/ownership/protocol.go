package ownership

// Protocol decides what happens to a change of the SHARED configuration if another writer changed it in the
// meantime (SO-11). Under no protocol does the last writer simply win.
type Protocol string

// The protocols.
const (
	// Reject rejects the change.
	Reject Protocol = "reject"
	// Merge applies the change if no other writer changed the same keys, and rejects it otherwise. The previous
	// writer must use Merge too.
	Merge Protocol = "merge"
)

// IsValid reports whether p is one of the protocols.
func (p Protocol) IsValid() bool { return p == Reject || p == Merge }
