package trace

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Eraser removes the data of sessions and users from the ORCHESTRATOR tier (docs/adr/0036). Each erasure begins
// with a durable mark, and any replica that finds an unfinished one may complete it.
type Eraser interface {
	// BeginErasure marks a session or a user, unless it is already marked, and returns the progress of its
	// erasure. From then on no trace of the session can be claimed. With anew, a new mark replaces the mark of an
	// ended erasure, which is the receipt of that erasure. The result is unfinished when no caller has worked on
	// the erasure for a while.
	BeginErasure(ctx context.Context, s Subject, by string, anew bool) (memory.ErasureReport, error)
	// ChildSessions fences all traces of a marked session. It returns, sorted, the child sessions in which agents
	// worked for the session, according to claims and events. Later claims cannot add any.
	ChildSessions(ctx context.Context, ref session.Ref) ([]string, error)
	// SessionsOfUser returns at most limit sessions in which a user had traces whose last claim is not later than
	// until. It includes sessions that the memory service no longer has. It excludes sessions that AddRemoved has
	// already counted for the user.
	SessionsOfUser(ctx context.Context, tenant, user string, until time.Time, limit int) ([]string, error)
	// EraseTraces removes all traces of a marked session, with their events and all their list entries. An owner
	// that still writes to one of them gets session_deleted. An interrupted call can be repeated; each trace is
	// counted once.
	EraseTraces(ctx context.Context, ref session.Ref) error
	// AddRemoved adds to the counts of removed data in a mark. A session that was already counted for its user is
	// not counted again.
	AddRemoved(ctx context.Context, s Subject, of string, counts map[string]int64) error
	// EndErasure marks an erasure as ended and returns its final state.
	EndErasure(ctx context.Context, s Subject) (memory.ErasureReport, error)
	// UnfinishedErasures returns at most limit erasures on which no caller has worked for a while. Each is
	// returned to one caller only.
	UnfinishedErasures(ctx context.Context, limit int) ([]Subject, error)
}

// Subject is a session or a user whose data is erased.
type Subject struct {
	Tenant        string
	Session, User string // exactly one of them is set
}

// Ref names the session.
func (s Subject) Ref() session.Ref { return session.Ref{Tenant: s.Tenant, Session: s.Session} }

// Kinds of data of a session in the ORCHESTRATOR tier.
const (
	KindTraces    = "traces"
	KindEvents    = "events"
	KindDecisions = "decisions" // entries of the audit of decisions
)
