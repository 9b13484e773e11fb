package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// ErrNoKey is wrapped by the error of Memory.Get for a key that does not exist (AD-17).
var ErrNoKey = errors.New("no such key")

// tempPrefix begins the keys that exist only until the turn ends (AD-19).
const tempPrefix = "temp:"

// Store gives the running agent access to the MEMORY tier. Its methods return errors with the modes of package memory.
type Store interface {
	// State returns the session's state by key. It also returns the revisions of the keys under app: and user: that exist (-1 for a
	// revision that the store does not know), and the source of untrusted text in the state (empty if there is none).
	State(ctx context.Context) (values map[string]json.RawMessage, revisions map[string]int64, untrusted string, err error)
	// SaveArtifact stores content as the next version of an artifact. An artifact whose name begins with user: belongs to the user,
	// and all of the user's sessions share its versions (AD-23).
	SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (version int, err error)
	// LoadArtifact returns a version of an artifact (0 means the latest).
	LoadArtifact(ctx context.Context, name string, version int) (content []byte, mediaType string, err error)
	// Search finds messages in earlier sessions of the user (AD-24).
	Search(ctx context.Context, query string, limit int) ([]Found, error)
	// EarlierEntries returns the latest trace entries of earlier turns, oldest first (limit 0 means execution.MaxEntries).
	EarlierEntries(ctx context.Context, limit int) ([]event.Event, error)
}

// Found is a message that Search found in an earlier session.
type Found struct {
	Session string
	Text    string
	Score   float64 // relevance, greater than 0 and at most 1
}

// Memory is the session's state as a turn sees it: the stored values, overlaid with the changes that the turn requested. Changes are
// stored with the step, all or none; until then only the turn sees them (AD-18). Safe for concurrent use, because tools may run
// concurrently.
type Memory struct {
	store  Store // nil without a memory service
	actor  string
	stored *statechange.Stored

	artifacts *turnstate.Artifacts

	mu        sync.Mutex
	inherited map[string]json.RawMessage // changes that a fork inherited
	changes   statechange.Log            // made by the turn so far
	unemitted map[string]json.RawMessage // changes that no event contains yet
	violated  func(*failure.Error)       // receives rejected writes (nil ignores them)
}

// NewMemory returns a memory backed by store for a turn of the agent named actor. A nil store has no state and no artifacts.
func NewMemory(store Store, actor string) *Memory {
	return &Memory{store: store, actor: actor, stored: &statechange.Stored{}, artifacts: &turnstate.Artifacts{}}
}

// Fork returns a copy of this memory for an agent that runs concurrently with others. Later changes of the copy do not affect the
// original.
func (m *Memory) Fork(actor string) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	base := map[string]json.RawMessage{}
	maps.Copy(base, m.inherited)
	maps.Copy(base, m.changes.Values())
	return &Memory{store: m.store, actor: actor, stored: m.stored, inherited: base, violated: m.violated, artifacts: m.artifacts.Fork()}
}

// Join applies the changes of a fork without emitting them, because the agent with the fork has emitted them already. If both have
// changed a key since the fork, updates are repeated, and objects are merged key by key, at every depth. For any other value the fork
// wins, and the key is returned.
func (m *Memory) Join(fork *Memory) (overwritten []string) {
	fork.mu.Lock()
	made := fork.changes.Clone()
	fork.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes.Join(made, func(key string) json.RawMessage {
		if value, ok := fork.inherited[key]; ok {
			return value
		}
		return m.stored.Value(key)
	})
}

// joinUnemitted is Join for changes that the next event contains as if they were made here.
func (m *Memory) joinUnemitted(fork *Memory) (overwritten []string) {
	overwritten = m.Join(fork)
	fork.mu.Lock()
	made := fork.changes.Values()
	fork.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range made {
		made[key], _ = m.changes.Value(key)
	}
	statechange.Collect(&m.unemitted, made)
	m.artifacts.Join(fork.artifacts)
	return overwritten
}

// Get returns the JSON of a key. All sessions share keys under app:, and all sessions of the user share keys under user:. Keys under
// temp: belong to the turn and are never stored. The error wraps ErrNoKey when the key does not exist, and has a mode of
// memory.Store.GetState otherwise.
func (m *Memory) Get(ctx context.Context, key string) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, err := m.get(ctx, key)
	if err != nil || len(value) > 0 {
		return bytes.Clone(value), err
	}
	return nil, failure.Newf(failure.NotFound, "hook.Memory", "state %q: there is no such key; set it first", key).Because(ErrNoKey)
}

// get returns the value of a key, which is empty if the key does not exist. The caller holds m.mu.
func (m *Memory) get(ctx context.Context, key string) (json.RawMessage, error) {
	if value, ok := m.changes.Value(key); ok {
		return value, nil
	}
	if value, ok := m.inherited[key]; ok || strings.HasPrefix(key, tempPrefix) {
		return value, nil
	}
	if m.store == nil {
		return nil, nil
	}
	stored, err := m.stored.Load(ctx, m.store.State)
	return stored[key], err
}

// Untrusted returns the source of untrusted text in the state. It is empty if there is none or if the state was not read yet. The
// state may contain text that a concurrent turn read after this turn began (guarantee S14).
func (m *Memory) Untrusted() string { return m.stored.Untrusted() }

// Read decodes the JSON of a key into the value that into points to. It returns the errors of Get, and an error if the JSON does not
// fit.
func (m *Memory) Read(ctx context.Context, key string, into any) error {
	value, err := m.Get(ctx, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(value, into); err != nil {
		return failure.Newf(failure.AgentLogic, "hook.Memory", "state %q does not fit into a %T", key, into).Because(err)
	}
	return nil
}

// Set requests a change of the session's state: key gets value, encoded as JSON. It fails with state_violation for a key of another
// tier, and with user_invalid_input for a value without a JSON form.
func (m *Memory) Set(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return statechange.NewUnencodableError(key, err)
	}
	return m.requestChange(key, text)
}

// Delete requests the removal of a key.
func (m *Memory) Delete(key string) error { return m.requestChange(key, nil) }

// requestChange checks the owner of a key and applies the change to this memory. A key without an ownership rule belongs to the
// session from then on (C-18).
func (m *Memory) requestChange(key string, value json.RawMessage) error {
	if err := m.checkOwner(key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(key, statechange.Change{Value: value, Revision: m.stored.Revision(key)})
	return nil
}

// checkOwner rejects a write to a key of another tier, and reports it.
func (m *Memory) checkOwner(key string) error {
	owner, declared := ownership.OwnerOf(key)
	if !declared || owner == ownership.Memory || strings.HasPrefix(key, tempPrefix) {
		return nil
	}
	m.mu.Lock()
	report := m.violated
	m.mu.Unlock()
	err := ownership.NewViolationError("hook.Memory", key, owner, m.actor)
	if report != nil {
		report(err)
	}
	return err
}

// setViolationHandler sets the function that receives rejected writes. Agents of one flow may share a memory. Then the first handler
// receives the rejected writes of all of them.
func setViolationHandler(m *Memory, report func(*failure.Error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.violated == nil {
		m.violated = report
	}
}

// apply applies a change that has passed the ownership check. The caller holds m.mu.
func (m *Memory) apply(key string, c statechange.Change) {
	m.changes.Add(key, c)
	statechange.Collect(&m.unemitted, map[string]json.RawMessage{key: c.Value})
}

// SaveArtifact stores content at once, as the next version of an artifact. An artifact whose name begins with user: belongs to the
// user: all of the user's sessions load it and add versions. In a session without a user such a name fails with user_invalid_input;
// other errors are those of memory.PutArtifact.
func (m *Memory) SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (int, error) {
	if m.store == nil {
		return 0, missingError("artifacts")
	}
	return m.artifacts.Save(ctx, m.store.SaveArtifact, name, mediaType, bytes.Clone(content))
}

// AppendArtifact writes an artifact in pieces. Clients watch it grow, with the first 64 KiB of its content. The last piece,
// which may be empty, stores it as SaveArtifact does and returns its version; earlier ones return 0. Until then it is in
// RAM, and what is not complete at the end of the tool call or the turn is dropped. At most 8 grow at the same time.
func (m *Memory) AppendArtifact(ctx context.Context, name, mediaType string, piece []byte, last bool) (version int, _ error) {
	if m.store == nil {
		return 0, missingError("artifacts")
	}
	return m.artifacts.Append(ctx, m.store.SaveArtifact, name, mediaType, piece, last)
}

// LoadArtifact returns a version of an artifact (0 means the latest).
func (m *Memory) LoadArtifact(ctx context.Context, name string, version int) (content []byte, mediaType string, err error) {
	if m.store == nil {
		return nil, "", missingError("artifacts")
	}
	return m.store.LoadArtifact(ctx, name, version)
}

// Search finds messages in earlier sessions of the user.
func (m *Memory) Search(ctx context.Context, query string, limit int) ([]Found, error) {
	if m.store == nil {
		return nil, nil
	}
	return m.store.Search(ctx, query, limit)
}

// EarlierEntries returns trace entries of earlier turns of the session, oldest first: the latest limit (0 means execution.MaxEntries,
// CO-68). Prompts and results are shortened. In a mesh they are read now, and kept as long as traces; in a program as long as the
// session is open. Without a session there are none. Modes: those of a mesh that does not respond.
func (m *Memory) EarlierEntries(ctx context.Context, limit int) ([]event.Event, error) {
	if m.store == nil {
		return nil, nil
	}
	return m.store.EarlierEntries(ctx, limit)
}

func missingError(what string) error {
	return failure.Newf(failure.AgentState, "hook.Memory", "there are no %s here: the agent runs without a memory service", what).Because(errors.ErrUnsupported)
}

// takeUnemitted returns the changes that no event contains yet. It returns each change once.
func (m *Memory) takeUnemitted() (state map[string]json.RawMessage, artifacts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, m.unemitted = m.unemitted, nil
	return state, m.artifacts.TakeUnemitted()
}

// snapshot returns a function that drops all changes made from now on (AD-5a).
func (m *Memory) snapshot() (revert func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.changes.Clone()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changes, m.unemitted = before, nil
		m.artifacts.TakeUnemitted()
	}
}
