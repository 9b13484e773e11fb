package memory

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of sessions (guarantee S9).
const (
	MaxPage                 = 200 // sessions that one call lists
	MaxSessionMetadata      = 64  // labels
	MaxSessionMetadataBytes = 16 << 10
	MaxSummaryBytes         = 64 << 10
	MaxSearched             = 100      // sessions that one search reads
	MaxSearchedBytes        = 32 << 20 // bytes of messages that one search reads, as conversation.Size counts
	MaxHits                 = 100
	DefaultKeep             = 50 // messages that a compaction keeps (LP-26)
)

// Sessions reads, changes, compacts and erases sessions.
type Sessions interface {
	// GetSession returns a session with its pending calls. Modes: not_found.
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	// ListSessions returns a page of sessions, newest first, and the token of the next page (empty means that
	// there are no more).
	ListSessions(ctx context.Context, l SessionFilter) ([]session.Session, string, error)
	// LoadHistory returns messages with a sequence greater than the given one, oldest first: at most limit
	// messages and MaxWindowBytes. An empty page means that there are no more. One message of RoleSummary replaces
	// the messages that a compaction removed. It has the sequence of the last removed message. Modes: not_found.
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	// UpdateSession pauses, resumes, closes or saves a session, or changes its metadata or settings, and returns it. A
	// verb that changes nothing succeeds. The revision grows by one when a label or a setting changes. A rejected
	// update creates no session.
	//
	// With NoAutoSave, the messages of turns are stored but not saved: LoadHistory and SearchMemory leave them out.
	// The turns of the session see them, and so does LoadHistory of a step in an open turn. Pause, Close, Save and CompactSession save them, and so does an update
	// that removes NoAutoSave.
	//
	// Modes: user_invalid_input by Settings.Check; revision_mismatch with the current revision as a fact;
	// session_busy when a turn is open and the verb is Pause, Close or Save; resource_quota above MaxSessionMetadata or MaxSessionMetadataBytes; not_found, also
	// when User names another user than the session has.
	UpdateSession(ctx context.Context, u SessionUpdate) (session.Session, error)
	// CompactSession replaces the oldest messages with a summary. It keeps a tool call together with its result,
	// and keeps the messages of a turn with waiting calls. Modes: session_busy while a turn is open, not_found.
	CompactSession(ctx context.Context, c Compact) (conversation.Compaction, error)
	// ClearSession removes the messages, the summary, the state and the artifacts of a session (LP-11). The
	// session stays usable, and its sequence and epochs are not reset. The revision of its state grows by one
	// unless it is 0. Its turns, labels and state request ids are kept, so that repeated requests get the same
	// answers. Modes: session_busy while a turn is open, not_found.
	ClearSession(ctx context.Context, ref session.Ref) error
	// DeleteSession removes a session and leaves a tombstone. The tombstone fences the open turn and rejects late
	// writers for Retention. Deleting again succeeds and changes nothing. Modes: not_found when the session never
	// existed.
	DeleteSession(ctx context.Context, ref session.Ref) (ErasureReport, error)
	// EraseUser removes the state and artifacts under user: once the user has no sessions. While the result names
	// sessions, the caller must delete them and call again. From the first call until a call names no session, new
	// sessions of the user are rejected as deleted. Late writes of a deleted session cannot change what the user
	// stores afterwards. Repeating an erasure succeeds.
	EraseUser(ctx context.Context, tenant, user string) (UserErasure, error)
	// SearchMemory finds messages of a user that contain words of the query (see Query). Hits are ordered by
	// score, then by the newest session, then by the latest message. It returns at most MaxWindowBytes. It reads
	// the newest MaxSearched sessions, each from its latest message, and ends after MaxSearchedBytes. It does not
	// search summaries.
	SearchMemory(ctx context.Context, s Search) ([]Hit, error)
}

// SessionFilter selects a page of sessions.
type SessionFilter struct {
	Tenant string
	User   string // (empty means all users)
	Limit  int    // 1 to MaxPage
	After  string // token of this page, returned with the previous page (empty means the first page)
}

// SessionUpdate is a request to change a session.
type SessionUpdate struct {
	Ref        session.Ref
	Verb       session.Verb
	Metadata   map[string]string // labels to set; an empty value removes a label
	Settings   *session.Settings // new settings (nil keeps those of the session)
	IfRevision int64             // revision that the session must have (0 means any)
	Create     bool              // create an unknown session, in the state Created
	User       string            // user of the new session; only with Create
}

// Compact is a request to replace the oldest messages of a session with a summary.
type Compact struct {
	Ref      session.Ref
	Strategy conversation.Strategy
	Keep     int    // number of latest messages to keep (0 means DefaultKeep)
	UpTo     int64  // sequence of the last message that may be removed, because Summary has read no later one (0 means any)
	Summary  string // summary of the removed messages, at most MaxSummaryBytes (empty means that the store generates one)
}

// Search asks for messages.
type Search struct {
	Tenant string
	User   string
	Query  string
	Limit  int // 1 to MaxHits
}

// Hit is a message that a search found.
type Hit struct {
	Session string
	Message conversation.Message
	Score   float64 // share of the query's words that the message contains, above 0 up to 1
}
