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

// Origin holds the values from which a Context is made (contract OC-7). Put no secrets into Metadata, because it is stored with
// the trace, and every agent and tool can read it. Credentials belong in Auth.
type Origin struct {
	TraceID        string // id of the turn's trace (required)
	RootTraceID    string // the trace with which the run began (empty means TraceID)
	RequestID      string // id of the request that began the run
	Profile        string // name of the profile under which the run is handled (empty means DefaultProfile)
	UserIntent     string // what the user wants, in the user's words
	UserID         string // owner of the session
	MemoryScope    string // the memory that the run may use: user:x, session:x or conv:x; needs a UserID
	ConversationID string // id of the conversation; needs a SessionID
	SessionID      string
	Metadata       map[string]string
	Created        time.Time // zero means now
}

// Context says on whose behalf a run acts and to which trace it belongs. It is immutable: methods that change a
// field return a new Context, and maps are copied.
type Context struct {
	origin    Origin
	parent    *Context
	hasParent bool // true even if the parent is in another process
}

// NewContext returns a context without a parent. Modes: user_invalid_input with a message that names the invalid
// field.
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
	return Context{origin: o}, nil
}

var (
	profilePattern     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	memoryScopePattern = regexp.MustCompile(`^(user|session|conv):.+$`)
)

// check returns an error if a field violates the rules of OC-9.
func (o Origin) check() error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "execution.NewContext", format, args...)
	}
	switch {
	case strings.TrimSpace(o.TraceID) == "":
		return wrong("trace_id is empty; every run has one")
	case o.MemoryScope != "" && o.UserID == "":
		return wrong("memory_scope %q needs a user_id", o.MemoryScope)
	case o.MemoryScope != "" && !memoryScopePattern.MatchString(o.MemoryScope):
		return wrong("memory_scope %q: use user:x, session:x or conv:x", o.MemoryScope)
	case o.ConversationID != "" && o.SessionID == "":
		return wrong("conversation_id %q needs a session_id", o.ConversationID)
	case o.Profile != "" && !profilePattern.MatchString(o.Profile):
		return wrong("profile %q: use a to z, 0 to 9 and -, at most 63, with a letter first", o.Profile)
	case len(o.Metadata) > MaxTurnMetadata:
		return wrong("metadata: %d pairs are too many; use at most %d", len(o.Metadata), MaxTurnMetadata)
	}
	for key, value := range o.Metadata {
		if key == "" || len(key) > MaxTurnMetadataKeyBytes || len(value) > MaxTurnMetadataValueBytes {
			return wrong("metadata %q: a key has 1 to %d bytes, a value at most %d", key, MaxTurnMetadataKeyBytes, MaxTurnMetadataValueBytes)
		}
	}
	return nil
}

// Origin returns a copy of what the context was made from: the ids, the caller and the metadata of its turn.
func (c Context) Origin() Origin {
	o := c.origin
	o.Metadata = maps.Clone(o.Metadata)
	return o
}

// TraceID returns the id of the turn's trace. It is the same in all contexts that are derived from this one.
func (c Context) TraceID() string { return c.origin.TraceID }

// RootTraceID returns the id of the trace with which the run began. It is the same in all turns of the run,
// including turns of remote agents, turns with answers, and resumed turns (contract OC-10).
func (c Context) RootTraceID() string { return c.origin.RootTraceID }

// Profile returns the name of the profile under which the run is handled.
func (c Context) Profile() string { return c.origin.Profile }

// Metadata returns the value of a label that the caller set (empty if it is not set).
func (c Context) Metadata(key string) string { return c.origin.Metadata[key] }

// Parent returns the context from which WithUserIntent derived this one. It returns false if there is none, or if
// it is in another process.
func (c Context) Parent() (Context, bool) {
	if c.parent == nil {
		return Context{}, false
	}
	return *c.parent, true
}

// HasParent reports whether the context has a parent, even one in another process.
func (c Context) HasParent() bool { return c.hasParent }

// IsZero reports whether c is the zero Context.
func (c Context) IsZero() bool { return c.origin.TraceID == "" }

// WithMetadata returns a copy of the context with additional labels. They replace labels of the same name. Modes:
// as for NewContext.
func (c Context) WithMetadata(more map[string]string) (Context, error) {
	merged := maps.Clone(c.origin.Metadata)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, more)
	c.origin.Metadata = merged
	return c, c.origin.check()
}

// WithUserIntent returns a new child of the context, for a part of the run with another intent.
func (c Context) WithUserIntent(intent string) Context {
	child := c
	child.parent, child.hasParent = &c, true
	child.origin.UserIntent, child.origin.Created = intent, time.Now()
	return child
}

// WithRequestID returns a copy of the context with another request id.
func (c Context) WithRequestID(id string) Context { c.origin.RequestID = id; return c }

// WithProfile returns a copy of the context with another profile. Modes: as for NewContext.
func (c Context) WithProfile(name string) (Context, error) {
	c.origin.Profile = name
	return c, c.origin.check()
}

// contextJSON is the JSON form of a context, without its parent.
type contextJSON struct {
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

// MarshalJSON encodes the context. The field has_parent takes the place of the parent (OC-9).
func (c Context) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		contextJSON
		HasParent bool `json:"has_parent"`
	}{contextJSON(c.origin), c.hasParent})
}

// UnmarshalJSON decodes a context. Modes: as for NewContext.
func (c *Context) UnmarshalJSON(text []byte) error {
	var read struct {
		contextJSON
		HasParent bool `json:"has_parent"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return failure.New(failure.UserInvalidInput, "execution.NewContext", "the context cannot be read").Because(err)
	}
	made, err := NewContext(Origin(read.contextJSON))
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

// ContextFrom returns the Context of the running step. Handlers, models and tools must pass the context that they
// were called with. It returns false if there is none.
func ContextFrom(ctx context.Context) (Context, bool) {
	c, ok := ctx.Value(contextKey{}).(Context)
	return c, ok
}
