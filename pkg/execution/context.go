package execution

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Origin is what a Context is made of (contract OC-7). Metadata is no place for secrets: it is
// stored with the trace, and every agent and tool reads it. Credentials belong into Auth.
type Origin struct {
	TraceID        string // of the turn; required
	RootTraceID    string // of the run: the trace with which it began; empty: TraceID
	RequestID      string // of the request that began it
	Profile        string // how it shall be handled, a name; empty: DefaultProfile
	UserIntent     string // what the user wants, in the user's words
	UserID         string // whose session it is
	MemoryScope    string // whose memory it may use: user:x, session:x or conv:x; needs a UserID
	ConversationID string // the conversation, which is the session; needs a SessionID
	SessionID      string //
	Metadata       map[string]string
	Created        time.Time // zero: now
}

// Context is under what a run acts: who asked, in which trace, and how. It is a value that never
// changes: what changes it returns another one, and maps go in and out as copies.
type Context struct {
	o         Origin
	parent    *Context
	hasParent bool // also when it was read and the parent is elsewhere
}

// NewContext returns a context without a parent. Modes: user_invalid_input, which names the field.
func NewContext(o Origin) (Context, error) {
	if err := o.check(); err != nil {
		return Context{}, err
	}
	if o.Profile == "" {
		o.Profile = DefaultProfile
	}
	if o.RootTraceID == "" {
		o.RootTraceID = o.TraceID
	}
	if o.Created.IsZero() {
		o.Created = time.Now()
	}
	o.Metadata = maps.Clone(o.Metadata)
	return Context{o: o}, nil
}

var (
	profile = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	scope   = regexp.MustCompile(`^(user|session|conv):.+$`)
)

// check holds the rules of OC-9.
func (o Origin) check() error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "execution.NewContext", format, args...)
	}
	switch {
	case strings.TrimSpace(o.TraceID) == "":
		return wrong("trace_id is empty; every run has one")
	case o.MemoryScope != "" && o.UserID == "":
		return wrong("memory_scope %q needs a user_id", o.MemoryScope)
	case o.MemoryScope != "" && !scope.MatchString(o.MemoryScope):
		return wrong("memory_scope %q: use user:x, session:x or conv:x", o.MemoryScope)
	case o.ConversationID != "" && o.SessionID == "":
		return wrong("conversation_id %q needs a session_id", o.ConversationID)
	case o.Profile != "" && !profile.MatchString(o.Profile):
		return wrong("profile %q: use a to z, 0 to 9 and -, at most 63, with a letter first", o.Profile)
	case len(o.Metadata) > MaxMetadata:
		return wrong("metadata: %d pairs are too many; use at most %d", len(o.Metadata), MaxMetadata)
	}
	for key, value := range o.Metadata {
		if key == "" || len(key) > MaxMetadataKey || len(value) > MaxMetadataValue {
			return wrong("metadata %q: a key has 1 to %d bytes, a value at most %d", key, MaxMetadataKey, MaxMetadataValue)
		}
	}
	return nil
}

// Origin is what the context is made of, as a copy.
func (c Context) Origin() Origin {
	o := c.o
	o.Metadata = maps.Clone(o.Metadata)
	return o
}

// TraceID never changes on the way: every context that is made of another has the same.
func (c Context) TraceID() string { return c.o.TraceID }

// RootTraceID is the trace with which the run began: the same in all its turns, whoever asked for
// them, and whatever was tried again or gone on with (contract OC-10).
func (c Context) RootTraceID() string { return c.o.RootTraceID }

// Profile is how the run shall be handled.
func (c Context) Profile() string { return c.o.Profile }

// Metadata returns one of the caller's labels; empty when there is none of that name.
func (c Context) Metadata(key string) string { return c.o.Metadata[key] }

// Parent is the context that this one was made of by WithUserIntent. False: there is none, or
// it is in another process.
func (c Context) Parent() (Context, bool) {
	if c.parent == nil {
		return Context{}, false
	}
	return *c.parent, true
}

// HasParent reports whether there is a parent, here or elsewhere.
func (c Context) HasParent() bool { return c.hasParent }

// IsZero reports whether it is none.
func (c Context) IsZero() bool { return c.o.TraceID == "" }

// WithMetadata is the context with more labels; those of the same name are replaced. The parent
// stays. Fails as NewContext does when there are too many.
func (c Context) WithMetadata(more map[string]string) (Context, error) {
	merged := maps.Clone(c.o.Metadata)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, more)
	c.o.Metadata = merged
	return c, c.o.check()
}

// WithUserIntent is a child of the context: what a part of the run is asked to do. The child is
// created now.
func (c Context) WithUserIntent(intent string) Context {
	child := c
	child.parent, child.hasParent = &c, true
	child.o.UserIntent, child.o.Created = intent, time.Now()
	return child
}

// WithRequestID is the context with another request.
func (c Context) WithRequestID(id string) Context { c.o.RequestID = id; return c }

// WithProfile is the context with another profile. Fails as NewContext does for one that is no name.
func (c Context) WithProfile(name string) (Context, error) { c.o.Profile = name; return c, c.o.check() }

// document is a context as it is written. Of a parent it says only that there is one.
type document struct {
	TraceID        string            `json:"trace_id"`
	RootTraceID    string            `json:"root_trace_id,omitempty"`
	RequestID      string            `json:"request_id,omitempty"`
	Profile        string            `json:"profile"`
	UserIntent     string            `json:"user_intent,omitempty"`
	UserID         string            `json:"user_id,omitempty"`
	MemoryScope    string            `json:"memory_scope,omitempty"`
	ConversationID string            `json:"conversation_id,omitempty"`
	SessionID      string            `json:"session_id,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Created        time.Time         `json:"created_at"`
}

// MarshalJSON writes the context, with has_parent in place of the parent (OC-9).
func (c Context) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		document
		HasParent bool `json:"has_parent"`
	}{document(c.o), c.hasParent})
}

// UnmarshalJSON reads a context, and fails as NewContext does.
func (c *Context) UnmarshalJSON(text []byte) error {
	var read struct {
		document
		HasParent bool `json:"has_parent"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return failure.New(failure.UserInvalidInput, "execution.NewContext", "the context cannot be read").Because(err)
	}
	made, err := NewContext(Origin(read.document))
	if err != nil {
		return err
	}
	made.hasParent = read.HasParent
	*c = made
	return nil
}

type contextKey struct{}

// WithContext returns a context in which ContextFrom finds c. It is for code that runs steps.
func WithContext(ctx context.Context, c Context) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// ContextFrom returns the Context of the running step. Handlers, models and tools call it with the context that they
// were called with. It is false when there is none.
func ContextFrom(ctx context.Context) (Context, bool) {
	c, ok := ctx.Value(contextKey{}).(Context)
	return c, ok
}
