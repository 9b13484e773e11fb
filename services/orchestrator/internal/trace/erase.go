package trace

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Erasures remove what the ORCHESTRATOR tier has of sessions and users (docs/adr/0036). Each begins with a
// durable mark, and any replica that finds an unfinished one may complete it.
type Erasures interface {
	// BeginErasure marks a session or a user, unless it is marked, and returns the progress of its erasure.
	// From then on no trace of the session can be claimed. With anew, a mark whose erasure has ended,
	// which is its receipt, is replaced by a new one. Unfinished returns an erasure that was not
	// continued for a while since it was last marked.
	BeginErasure(ctx context.Context, s Subject, by string, anew bool) (memory.Erasure, error)
	// ChildSessions fences all traces of a marked session. It returns, sorted, the child sessions in which
	// agents worked for it, according to claims and events. Later claims cannot add any.
	ChildSessions(ctx context.Context, ref session.Ref) ([]string, error)
	// SessionsOfUser returns at most limit sessions in which a user had traces, none of which was claimed later
	// than until. It includes sessions that the memory service no longer has, and excludes those that
	// Removed counted for the user.
	SessionsOfUser(ctx context.Context, tenant, user string, until time.Time, limit int) ([]string, error)
	// EraseTraces removes all traces of a marked session, with their events and every list entry. An
	// owner that still writes to one gets session_deleted. It can be repeated wherever it ended, and
	// counts each trace once.
	EraseTraces(ctx context.Context, ref session.Ref) error
	// AddRemoved adds to the counts of a mark. A session that was already counted for its user changes
	// nothing.
	AddRemoved(ctx context.Context, s Subject, of string, counts map[string]int64) error
	// EndErasure ends an erasure and returns it.
	EndErasure(ctx context.Context, s Subject) (memory.Erasure, error)
	// UnfinishedErasures returns at most limit erasures that were not continued for a while, each to one caller.
	UnfinishedErasures(ctx context.Context, limit int) ([]Subject, error)
}

// Subject is what is erased: a session or a user.
type Subject struct {
	Tenant        string
	Session, User string // exactly one of them is set
}

// Ref names the session.
func (s Subject) Ref() session.Ref { return session.Ref{Tenant: s.Tenant, Session: s.Session} }

// These are the kinds of data that the tier has of a session.
const (
	KindTraces    = "traces"
	KindEvents    = "events"
	KindDecisions = "decisions" // entries of the audit of decisions
)
