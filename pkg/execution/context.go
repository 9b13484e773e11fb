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

// Origin has the fields of a Context (contract OC-7). Put no secrets into Metadata: it is stored with the trace, and every
// agent and tool reads it. Credentials belong into Auth.
type Origin struct {
	TraceID        string // of the turn (required)
	RootTraceID    string // the trace with which the run began (empty means TraceID)
	RequestID      string // of the request that began the run
	Profile        string // name of the way in which the run is handled (empty means DefaultProfile)
	UserIntent     string // what the user wants, in the user's words
	UserID         string // owner of the session
	MemoryScope    string // the memory that the run may use: user:x, session:x or conv:x; needs a UserID
	ConversationID string // of the conversation; needs a SessionID
	SessionID      string
	Metadata       map[string]string
	Created        time.Time // zero means now
}

// Context says for whom a run acts, in which trace, and how. It never changes: methods that change a field return a new
// Context, and maps are copied.
type Context struct {
	o         Origin
	parent    *Context
	hasParent bool // also when the parent is in another process
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

// check applies the rules of OC-9.
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

// Origin returns a copy of the fields of the context.
func (c Context) Origin() Origin {
	o := c.o
	o.Metadata = maps.Clone(o.Metadata)
	return o
}

// TraceID returns the trace of the turn. Contexts made from this one have the same.
func (c Context) TraceID() string { return c.o.TraceID }

// RootTraceID returns the trace with which the run began. It is the same in all turns of the run, remote agents, answers
// and resumed turns included (contract OC-10).
func (c Context) RootTraceID() string { return c.o.RootTraceID }

// Profile returns the name of the way in which the run is handled.
func (c Context) Profile() string { return c.o.Profile }

// Metadata returns a label of the caller, or "".
func (c Context) Metadata(key string) string { return c.o.Metadata[key] }

// Parent returns the context that this one was made from by WithUserIntent. It is false when there is none, or when it
// is in another process.
func (c Context) Parent() (Context, bool) {
	if c.parent == nil {
		return Context{}, false
	}
	return *c.parent, true
}

// HasParent reports whether there is a parent, also in another process.
func (c Context) HasParent() bool { return c.hasParent }

// IsZero reports whether c is the zero Context.
func (c Context) IsZero() bool { return c.o.TraceID == "" }

// WithMetadata returns the context with more labels, which replace those of the same name. The parent stays the same.
// Modes: as of NewContext.
func (c Context) WithMetadata(more map[string]string) (Context, error) {
	merged := maps.Clone(c.o.Metadata)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, more)
	c.o.Metadata = merged
	return c, c.o.check()
}

// WithUserIntent returns a child of the context, created now, for a part of the run with a task of its own.
func (c Context) WithUserIntent(intent string) Context {
	child := c
	child.parent, child.hasParent = &c, true
	child.o.UserIntent, child.o.Created = intent, time.Now()
	return child
}

// WithRequestID returns the context with another request id.
func (c Context) WithRequestID(id string) Context { c.o.RequestID = id; return c }

// WithProfile returns the context with another profile. Modes: as of NewContext.
func (c Context) WithProfile(name string) (Context, error) { c.o.Profile = name; return c, c.o.check() }

// document is a context as JSON, without its parent.
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

// UnmarshalJSON reads a context. Modes: as of NewContext.
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
