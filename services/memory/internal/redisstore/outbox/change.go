package outbox

import (
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

// Prefixes of the ids of changes that calls enqueue. No turn id begins with one of them.
const (
	callPrefix = "call:" // a change of state
	putPrefix  = "put:"  // a new version of an artifact of the user
	dropPrefix = "drop:" // the removal of versions of an artifact of the user
)

// Change is a change in an outbox. A change from a commit has the request id as its id: <turn>/<step>. The id of a
// change from a call begins with a prefix.
type Change struct {
	id string
	memory.StateUpdate
	artifact memory.Artifact // set only for changes of artifacts, which use only Ref and TurnID of StateUpdate
}

// NewPutChange returns the change that adds content as the next version of an artifact of the user.
func NewPutChange(a memory.Artifact) Change { return Change{id: putPrefix + rand.Text(), artifact: a} }

// NewDropChange returns the change that removes a version of an artifact of the user (0 means all versions).
func NewDropChange(name string, version int) Change {
	return Change{id: dropPrefix + rand.Text(), artifact: memory.Artifact{Name: name, Version: version}}
}

// newStateChange returns the change for an UpdateState call.
func newStateChange(u memory.StateUpdate) Change {
	return Change{id: callPrefix + rand.Text(), StateUpdate: u}
}

// EncodeCommit returns the id and the encoded form of the shared state change that commit.lua enqueues. The
// encoded form is empty if the commit changes no shared state.
func EncodeCommit(c memory.Commit, shared map[string]json.RawMessage) (id string, stored []byte, err error) {
	id = commitID(c)
	if len(shared) == 0 {
		return id, []byte{}, nil
	}
	stored, err = db.Encoding.Marshal(memorywire.StateUpdateToProto(memory.StateUpdate{Ref: c.Ref, RequestID: id, Delta: shared, Epoch: c.Epoch}))
	return id, stored, err
}

// commitID returns the id of the change of a commit.
func commitID(c memory.Commit) string { return c.TurnID + "/" + strconv.Itoa(c.Result.Step) }

// isCall reports whether the change was enqueued by a call of its own rather than by a commit.
func (c Change) isCall() bool { return strings.HasPrefix(c.id, callPrefix) || c.isPut() || c.isDrop() }

func (c Change) isPut() bool { return strings.HasPrefix(c.id, putPrefix) }

func (c Change) isDrop() bool { return strings.HasPrefix(c.id, dropPrefix) }

// decisionID returns the id under which the destination records whether it has applied or rejected the change.
func (c Change) decisionID() string { return c.Ref.Session + "/" + c.id }
