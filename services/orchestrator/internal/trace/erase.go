package trace

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Erasures remove what the ORCHESTRATOR tier has of sessions and of users (docs/adr/0036). Each
// is marked first, and the mark is durable: whoever finds one that has not ended may end it.
type Erasures interface {
	// Condemn marks a session, or a user, unless it is, and returns its erasure as far as it
	// is. From then on no trace of the session can be claimed. Anew: a mark whose erasure has ended,
	// which is its receipt, makes room for a new one. Others hear of one that has not ended when it
	// was last condemned a while ago.
	Condemn(ctx context.Context, s Subject, by string, anew bool) (memory.Erasure, error)
	// Below fences all traces of a session that is condemned, and returns the sessions in which
	// agents worked for it, as claims said and events tell, sorted. Claims will enter no others.
	Below(ctx context.Context, ref session.Ref) ([]string, error)
	// Visited returns sessions in which a user had traces, none of them claimed later, at most
	// so many: also those that the memory service has forgotten, and none that Removed has counted
	// for the user.
	Visited(ctx context.Context, tenant, user string, until time.Time, limit int) ([]string, error)
	// EraseTraces removes all traces of a session that is condemned, with their events and
	// whatever lists them. An owner that still writes to one gets session_deleted. It can be
	// done again wherever it ended, and counts each trace once.
	EraseTraces(ctx context.Context, ref session.Ref) error
	// Removed adds to what a mark counts. A session that was counted for its user before
	// changes nothing.
	Removed(ctx context.Context, s Subject, of string, counts map[string]int64) error
	// Erased ends an erasure, and returns it.
	Erased(ctx context.Context, s Subject) (memory.Erasure, error)
	// Unfinished returns erasures that nobody has gone on with for a while, at most so many,
	// each to one caller.
	Unfinished(ctx context.Context, limit int) ([]Subject, error)
}

// Subject is who or what is erased: a session, or a user.
type Subject struct {
	Tenant        string
	Session, User string // one of them
}

// Ref names the session.
func (s Subject) Ref() session.Ref { return session.Ref{Tenant: s.Tenant, Session: s.Session} }

// Kinds of what the tier has of a session.
const (
	KindTraces    = "traces"
	KindEvents    = "events"
	KindDecisions = "decisions" // entries of the audit of decisions
)
