package memory

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of sessions (guarantees S9).
const (
	MaxPage          = 200 // sessions that one call lists
	MaxMetadata      = 64  // labels
	MaxMetadataBytes = 16 << 10
	MaxSummaryBytes  = 64 << 10
	MaxSearched      = 100      // sessions that one search looks into
	MaxSearchedBytes = 32 << 20 // of their messages, as conversation.Size counts
	MaxHits          = 100
	DefaultKeep      = 50 // messages that a compaction leaves (LP-26)
)

// Sessions reads and tends conversations.
type Sessions interface {
	// GetSession returns what is known of a session. Modes: not_found.
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	// ListSessions returns sessions, those made last first, and where the next page begins;
	// empty: there are no more.
	ListSessions(ctx context.Context, l SessionFilter) ([]session.Session, string, error)
	// LoadHistory returns at most limit messages above the given sequence, oldest first,
	// and no more than MaxWindowBytes. None means that there are no more. What a compaction
	// took out is one message of RoleSummary, at the sequence of the last one that it stands
	// for. Modes: not_found.
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	// UpdateSession pauses, resumes or closes a session, or changes its metadata, and
	// returns it. A verb that has nothing to change is fine. The revision grows by one when a
	// label becomes another. Modes: revision_mismatch with the current revision as a fact;
	// session_busy when a turn is open and the verb is Pause or Close; resource_quota above
	// MaxMetadata or MaxMetadataBytes; not_found, also when User names another user than the
	// session has. What is refused makes no session either.
	UpdateSession(ctx context.Context, u SessionUpdate) (session.Session, error)
	// CompactSession replaces the oldest messages by a summary. A tool call is never parted
	// from its result, and what a turn with calls that wait is about stays. Modes: session_busy while a turn is open, not_found.
	CompactSession(ctx context.Context, c Compact) (conversation.Compaction, error)
	// ClearSession removes the messages, the summary, the state and the artifacts of a
	// session, which stays usable (LP-11). Its sequence and its epochs go on, and so does the
	// revision of its state, which grows by one unless it is 0. What it answered stays
	// answered: its turns, its labels and the request ids of its state are kept. Modes:
	// session_busy while a turn is open, not_found.
	ClearSession(ctx context.Context, ref session.Ref) error
	// DeleteSession removes everything of a session but a mark, which fences the turn that
	// is open and keeps late writers out for Retention. Again it is fine and changes nothing.
	// Modes: not_found when it never was.
	DeleteSession(ctx context.Context, ref session.Ref) (Erasure, error)
	// EraseUser removes what the sessions of a user share, once there are none: state and
	// artifacts under user:. While the answer names sessions, delete them and call again; from
	// the first call until one that names none, a session that the user begins is refused as
	// deleted. What is late in the name of a session that was deleted meanwhile changes nothing
	// that the user has later. Again it is fine.
	EraseUser(ctx context.Context, tenant, user string) (ErasedUser, error)
	// SearchMemory finds messages of a user that hold words of the query, by Query: those with
	// the most of them first, then those of the session made last, then the latest. At most
	// MaxWindowBytes of them. It looks into the latest MaxSearched sessions, and in their
	// order, the latest message first, at no more than MaxSearchedBytes. Summaries are not
	// searched.
	SearchMemory(ctx context.Context, s Search) ([]Hit, error)
}

// SessionFilter asks for sessions.
type SessionFilter struct {
	Tenant string
	User   string // empty: all
	Limit  int    // 1 to MaxPage
	After  string // where the page before ended; empty: begin
}

// SessionUpdate changes a session.
type SessionUpdate struct {
	Ref        session.Ref
	Verb       session.Verb
	Metadata   map[string]string // to set; an empty value removes one
	IfRevision int64             // that the session must have; 0: any
	Create     bool              // make a session that is not known, in the state Created
	User       string            // whose it is; only with Create
}

// Compact makes a session shorter.
type Compact struct {
	Ref      session.Ref
	Strategy conversation.Strategy
	Keep     int    // how many of the latest messages stay; 0: DefaultKeep
	Summary  string // of what goes, at most MaxSummaryBytes; empty: one is made by rule
}

// Search asks for what was said.
type Search struct {
	Tenant string
	User   string
	Query  string
	Limit  int // 1 to MaxHits
}

// Hit is a message that was found.
type Hit struct {
	Session string
	Message conversation.Message
	Score   float64 // share of the query's words that it holds, above 0 up to 1
}
