package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// ErrNoKey is wrapped by the error of Memory.Get for a key that does not exist (AD-17).
var ErrNoKey = errors.New("no such key")

// tempPrefix begins the keys that exist only until the turn ends (AD-19).
const tempPrefix = "temp:"

// Store gives the running agent access to the MEMORY tier. Its methods return errors with the modes of package
// memory.
type Store interface {
	// State returns the session's state by key. It also returns the source of untrusted text in the state (empty
	// if there is none).
	State(ctx context.Context) (values map[string]json.RawMessage, untrusted string, err error)
	// SaveArtifact stores content as the next version of an artifact. An artifact whose name begins with user: belongs
	// to the user, and all of the user's sessions share its versions (AD-23).
	SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (version int, err error)
	// LoadArtifact returns a version of an artifact (0 means the latest).
	LoadArtifact(ctx context.Context, name string, version int) (content []byte, mediaType string, err error)
	// Search finds messages in earlier sessions of the user (AD-24).
	Search(ctx context.Context, query string, limit int) ([]Found, error)
}

// Found is a message that Search found in an earlier session.
type Found struct {
	Session string
	Text    string
	Score   float64 // relevance, greater than 0 and at most 1
}

// Memory is the session's state as a turn sees it: the stored values, overlaid with the changes that the turn requested.
// Changes are stored with the step, all or none; until then only the turn sees them (AD-18). Safe for concurrent use,
// because tools may run concurrently.
type Memory struct {
	store  Store // nil without a memory service
	actor  string
	stored *storedState

	mu                 sync.Mutex
	inherited          map[string]json.RawMessage // changes that a fork inherited
	changes            map[string]json.RawMessage // made by the turn so far; an empty value removes the key
	unemitted          map[string]json.RawMessage // changes that no event contains yet
	unjournaled        map[string]json.RawMessage // changes that the journal does not have yet
	unemittedArtifacts map[string]int             // saved versions that no event contains yet
	violated           func(*failure.Error)       // receives rejected writes (nil ignores them)
}

// storedState caches the state in the store. A turn reads it once and shares it with all forks of its memory.
type storedState struct {
	mu              sync.Mutex
	values          map[string]json.RawMessage // nil until they are read
	untrustedSource string                     // source of untrusted text in the values
}

// NewMemory returns a memory backed by store for a turn of the agent named actor. A nil store has no state and no
// artifacts.
func NewMemory(store Store, actor string) *Memory {
	return &Memory{store: store, actor: actor, stored: &storedState{}}
}

// Fork returns a copy of this memory for an agent that runs concurrently with others. Later changes of the copy do
// not affect the original.
func (m *Memory) Fork(actor string) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	base := map[string]json.RawMessage{}
	maps.Copy(base, m.inherited)
	maps.Copy(base, m.changes)
	return &Memory{store: m.store, actor: actor, stored: m.stored, inherited: base, violated: m.violated}
}

// Join applies the changes of a fork without emitting them, because the agent with the fork has emitted them
// already. If two forks changed a key, the last one to join wins.
func (m *Memory) Join(fork *Memory) {
	fork.mu.Lock()
	changes := maps.Clone(fork.changes)
	fork.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	merge(&m.changes, changes)
}

// joinUnemitted applies the changes of a fork as if they were made here: the next event contains them.
func (m *Memory) joinUnemitted(fork *Memory) {
	fork.mu.Lock()
	changes, artifacts := maps.Clone(fork.changes), maps.Clone(fork.unemittedArtifacts)
	fork.mu.Unlock()
	if len(changes) > 0 {
		m.apply(changes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unemittedArtifacts == nil {
		m.unemittedArtifacts = artifacts
		return
	}
	maps.Copy(m.unemittedArtifacts, artifacts)
}

// merge copies changes into a map, which it creates if it is nil.
func merge(into *map[string]json.RawMessage, changes map[string]json.RawMessage) {
	if *into == nil {
		*into = map[string]json.RawMessage{}
	}
	maps.Copy(*into, changes)
}

// Get returns the JSON of a key. All sessions share keys under app:, and all sessions of the user share keys under
// user:. Keys under temp: belong to the turn and are never stored. The error wraps ErrNoKey when the key does not exist.
func (m *Memory) Get(ctx context.Context, key string) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.changes[key]
	if !ok {
		value, ok = m.inherited[key]
	}
	if !ok && !strings.HasPrefix(key, tempPrefix) {
		stored, err := m.load(ctx)
		if err != nil {
			return nil, err
		}
		value = stored[key]
	}
	if len(value) == 0 {
		return nil, failure.Newf(failure.NotFound, "hook.Memory", "state %q: there is no such key; set it first", key).Because(ErrNoKey)
	}
	return bytes.Clone(value), nil
}

// Untrusted returns the source of untrusted text in the state. It is empty if there is none or if the state was
// not read yet. The state may contain text that a concurrent turn read after this turn began (S14).
func (m *Memory) Untrusted() string {
	m.stored.mu.Lock()
	defer m.stored.mu.Unlock()
	return m.stored.untrustedSource
}

// Read decodes the JSON of a key into the value that into points to. It returns the errors of Get, and an error if
// the JSON does not fit.
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

// Set requests a change of the session's state: key gets value, encoded as JSON. It fails with state_violation for
// a key of another tier, and with user_invalid_input for a value without a JSON form.
func (m *Memory) Set(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return failure.Newf(failure.UserInvalidInput, "hook.Memory", "state %q: the value cannot be written as JSON", key).Because(err)
	}
	return m.requestChange(key, text)
}

// Delete requests the removal of a key.
func (m *Memory) Delete(key string) error { return m.requestChange(key, nil) }

// requestChange checks the owner of a key and applies the change to this memory. A key without an ownership rule
// belongs to the session from then on (C-18).
func (m *Memory) requestChange(key string, value json.RawMessage) error {
	if owner, declared := ownership.OwnerOf(key); declared && owner != ownership.Memory && !strings.HasPrefix(key, tempPrefix) {
		return m.rejectWrite(ownership.NewViolationError("hook.Memory", key, owner, m.actor))
	}
	m.apply(map[string]json.RawMessage{key: value})
	return nil
}

// setViolationHandler sets the function that receives rejected writes. Agents of one flow may share a memory. Then
// the first handler receives the rejected writes of all of them.
func (m *Memory) setViolationHandler(report func(*failure.Error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.violated == nil {
		m.violated = report
	}
}

func (m *Memory) rejectWrite(err *failure.Error) error {
	m.mu.Lock()
	report := m.violated
	m.mu.Unlock()
	if report != nil {
		report(err)
	}
	return err
}

// apply applies changes that have passed the ownership check.
func (m *Memory) apply(changes map[string]json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	merge(&m.changes, changes)
	merge(&m.unemitted, changes)
	merge(&m.unjournaled, changes)
}

// SaveArtifact stores content at once, as the next version of an artifact. An artifact whose name begins with user:
// belongs to the user: all of the user's sessions load it and add versions. In a session without a user such a name
// fails with user_invalid_input; other errors are those of memory.PutArtifact.
func (m *Memory) SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (int, error) {
	if m.store == nil {
		return 0, m.missingError("artifacts")
	}
	version, err := m.store.SaveArtifact(ctx, name, mediaType, bytes.Clone(content))
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unemittedArtifacts == nil {
		m.unemittedArtifacts = map[string]int{}
	}
	m.unemittedArtifacts[name] = version
	return version, nil
}

// LoadArtifact returns a version of an artifact (0 means the latest).
func (m *Memory) LoadArtifact(ctx context.Context, name string, version int) (content []byte, mediaType string, err error) {
	if m.store == nil {
		return nil, "", m.missingError("artifacts")
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

// load reads the state once per turn. No other turn can change the session's own keys in the meantime, because
// this turn holds the session's lease.
func (m *Memory) load(ctx context.Context) (map[string]json.RawMessage, error) {
	m.stored.mu.Lock()
	defer m.stored.mu.Unlock()
	if m.stored.values != nil || m.store == nil {
		return m.stored.values, nil
	}
	state, untrusted, err := m.store.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	if state == nil {
		state = map[string]json.RawMessage{}
	}
	m.stored.values, m.stored.untrustedSource = state, untrusted
	return state, nil
}

func (m *Memory) missingError(what string) error {
	return failure.Newf(failure.AgentState, "hook.Memory", "there are no %s here: the agent runs without a memory service", what)
}

// takeUnemitted returns the changes that no event contains yet. It returns each change once.
func (m *Memory) takeUnemitted() (state map[string]json.RawMessage, artifacts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, artifacts = m.unemitted, m.unemittedArtifacts
	m.unemitted, m.unemittedArtifacts = nil, nil
	return state, artifacts
}

// snapshot returns a copy of all changes so far, which revert accepts.
func (m *Memory) snapshot() map[string]json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.changes)
}

// revert drops all changes made after a snapshot (AD-5a).
func (m *Memory) revert(to map[string]json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes, m.unemitted, m.unjournaled, m.unemittedArtifacts = to, nil, nil, nil
}

// takeUnjournaled returns the changes that the journal does not have yet. It returns each change once.
func (m *Memory) takeUnjournaled() map[string]json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	changes := m.unjournaled
	m.unjournaled = nil
	return changes
}

// changesToStore returns the changes to store with the step, which excludes keys under temp:. It returns nil if
// there are none.
func (m *Memory) changesToStore() map[string]json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.changes)
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool { return strings.HasPrefix(key, tempPrefix) })
	if len(all) == 0 {
		return nil
	}
	return all
}
