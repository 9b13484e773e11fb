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

// ErrNoKey is what Memory.Get wraps for a key that is not there (AD-17).
var ErrNoKey = errors.New("no such key")

// temp begins the keys that live as long as the turn (AD-19).
const temp = "temp:"

// Store is the MEMORY tier as the agent under way reaches it. All its methods may fail with
// the modes of package memory.
type Store interface {
	// State is what the session sees, by key, and the source of untrusted words that may be in it;
	// empty: there are none.
	State(ctx context.Context) (values map[string]json.RawMessage, untrusted string, err error)
	// SaveArtifact stores content as the next version of an artifact; one whose name begins
	// with user: is the user's, and the versions are those of all its sessions (AD-23).
	SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (version int, err error)
	// LoadArtifact returns a version of an artifact; 0 is the latest.
	LoadArtifact(ctx context.Context, name string, version int) (content []byte, mediaType string, err error)
	// Search finds what the session's user said or was told before (AD-24).
	Search(ctx context.Context, query string, limit int) ([]Found, error)
}

// Found is a message of a session before.
type Found struct {
	Session string
	Text    string
	Score   float64 // above 0 up to 1
}

// Memory is the session's state as a turn sees it: what is stored, and above it what the
// turn has asked to change. Changes are stored with the step, all or none; until then only
// the turn sees them (AD-18). Safe for concurrent use, because tools may run beside each
// other.
type Memory struct {
	store  Store // nil: there is none
	actor  string
	stored *stored

	mu        sync.Mutex
	below     map[string]json.RawMessage // of a fork: what had been changed when it began
	made      map[string]json.RawMessage // by the turn so far; an empty value removes
	delta     map[string]json.RawMessage // of them, those that no event has told yet
	unkept    map[string]json.RawMessage // of them, those that no journal has yet
	artifacts map[string]int             // saved, and not told yet
	refused   func(*failure.Error)       // is told of writes to keys of others; nil: nobody is
}

// stored is the state as the store has it. A turn reads it once, for all of its memories.
type stored struct {
	mu        sync.Mutex
	values    map[string]json.RawMessage // nil: not read yet
	untrusted string                     // source of words in it
}

// NewMemory returns what a turn of the agent actor sees of a store; nil: of nothing.
func NewMemory(store Store, actor string) *Memory {
	return &Memory{store: store, actor: actor, stored: &stored{}}
}

// Fork returns a memory that begins as this one is, and changes for itself: for an agent that
// works beside others.
func (m *Memory) Fork(actor string) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	below := map[string]json.RawMessage{}
	maps.Copy(below, m.below)
	maps.Copy(below, m.made)
	return &Memory{store: m.store, actor: actor, stored: m.stored, below: below, refused: m.refused}
}

// Join takes over what a fork has changed itself. Of two forks that changed a key the later
// one that joins decides. Who forked has told the changes already.
func (m *Memory) Join(fork *Memory) {
	fork.mu.Lock()
	changes := maps.Clone(fork.made)
	fork.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	note(&m.made, changes)
}

// absorb takes over what a fork has changed itself, as if it had been changed here.
func (m *Memory) absorb(fork *Memory) {
	fork.mu.Lock()
	changes, artifacts := maps.Clone(fork.made), maps.Clone(fork.artifacts)
	fork.mu.Unlock()
	if len(changes) > 0 {
		m.redo(changes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.artifacts == nil {
		m.artifacts = artifacts
		return
	}
	maps.Copy(m.artifacts, artifacts)
}

// note adds changes to others.
func note(into *map[string]json.RawMessage, changes map[string]json.RawMessage) {
	if *into == nil {
		*into = map[string]json.RawMessage{}
	}
	maps.Copy(*into, changes)
}

// Get returns the JSON of a key. Keys under app: are shared by all sessions, under user: by
// those of the user, under temp: they are the turn's own and never stored. An error wraps
// ErrNoKey when there is no such key.
func (m *Memory) Get(ctx context.Context, key string) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.made[key]
	if !ok {
		value, ok = m.below[key]
	}
	if !ok && !strings.HasPrefix(key, temp) {
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

// Untrusted is the source of words in the state, as it was read, that neither the user nor the author of
// the agent wrote; empty: there are none, or nobody has read it. A turn beside others may find there what
// others of them read after it began (S14).
func (m *Memory) Untrusted() string {
	m.stored.mu.Lock()
	defer m.stored.mu.Unlock()
	return m.stored.untrusted
}

// Read is Get that decodes the value.
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

// Set asks for a change: value as JSON. Modes: state_violation for a key of another tier,
// user_invalid_input for a value that is no JSON.
func (m *Memory) Set(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return failure.Newf(failure.UserInvalidInput, "hook.Memory", "state %q: the value cannot be written as JSON", key).Because(err)
	}
	return m.change(key, text)
}

// Delete asks for the removal of a key.
func (m *Memory) Delete(key string) error { return m.change(key, nil) }

// change notes a change. A key that no rule names is the session's when it is set here
// (C-18).
func (m *Memory) change(key string, value json.RawMessage) error {
	if owner, declared := ownership.Of(key); declared && owner != ownership.Memory && !strings.HasPrefix(key, temp) {
		return m.refuse(ownership.Violation("hook.Memory", key, owner, m.actor))
	}
	m.redo(map[string]json.RawMessage{key: value})
	return nil
}

// tell sets who is told of writes that are refused. Agents of one flow may share a memory, and
// then it is the first.
func (m *Memory) tell(refused func(*failure.Error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused == nil {
		m.refused = refused
	}
}

func (m *Memory) refuse(err *failure.Error) error {
	m.mu.Lock()
	refused := m.refused
	m.mu.Unlock()
	if refused != nil {
		refused(err)
	}
	return err
}

// redo makes changes that are allowed.
func (m *Memory) redo(changes map[string]json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	note(&m.made, changes)
	note(&m.delta, changes)
	note(&m.unkept, changes)
}

// SaveArtifact stores content as the next version of an artifact at once. Under a name that
// begins with user: it is the user's, as a key of state is: every session of the user loads it
// and adds to its versions. Modes: user_invalid_input for such a name in a session without a
// user; else as those of memory.PutArtifact.
func (m *Memory) SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (int, error) {
	if m.store == nil {
		return 0, m.none("artifacts")
	}
	version, err := m.store.SaveArtifact(ctx, name, mediaType, bytes.Clone(content))
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.artifacts == nil {
		m.artifacts = map[string]int{}
	}
	m.artifacts[name] = version
	return version, nil
}

// LoadArtifact returns a version of an artifact; 0 is the latest.
func (m *Memory) LoadArtifact(ctx context.Context, name string, version int) (content []byte, mediaType string, err error) {
	if m.store == nil {
		return nil, "", m.none("artifacts")
	}
	return m.store.LoadArtifact(ctx, name, version)
}

// Search finds what the session's user said or was told before.
func (m *Memory) Search(ctx context.Context, query string, limit int) ([]Found, error) {
	if m.store == nil {
		return nil, nil
	}
	return m.store.Search(ctx, query, limit)
}

// load reads the state once a turn. The turn holds its session, so nobody changes what is
// the session's own meanwhile.
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
	m.stored.values, m.stored.untrusted = state, untrusted
	return state, nil
}

func (m *Memory) none(what string) error {
	return failure.Newf(failure.AgentState, "hook.Memory", "there are no %s here: the agent runs without a memory service", what)
}

// take returns the changes that no event has told yet, and forgets that they are new.
func (m *Memory) take() (state map[string]json.RawMessage, artifacts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, artifacts = m.delta, m.artifacts
	m.delta, m.artifacts = nil, nil
	return state, artifacts
}

// mark remembers the changes so far, for revert.
func (m *Memory) mark() map[string]json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.made)
}

// revert drops the changes since a mark (AD-5a).
func (m *Memory) revert(to map[string]json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made, m.delta, m.unkept, m.artifacts = to, nil, nil, nil
}

// keep returns the changes that no journal has yet, and forgets that.
func (m *Memory) keep() map[string]json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	changes := m.unkept
	m.unkept = nil
	return changes
}

// lasting are the changes that are to be stored.
func (m *Memory) lasting() map[string]json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.made)
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool { return strings.HasPrefix(key, temp) })
	if len(all) == 0 {
		return nil
	}
	return all
}
