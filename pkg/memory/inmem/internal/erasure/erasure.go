// Package erasure clears and deletes sessions, and erases users.
package erasure

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Eraser implements the methods of memory.Sessions that remove data. It is safe for concurrent use.
type Eraser struct{ db *db.DB }

// New returns an Eraser that removes data from d.
func New(d *db.DB) *Eraser { return &Eraser{d} }

// ClearSession implements memory.Sessions.
func (e *Eraser) ClearSession(_ context.Context, ref session.Ref) error {
	const op = "memory.ClearSession"
	e.db.Lock()
	defer e.db.Unlock()
	c, err := e.db.GetSession(op, ref)
	if err != nil {
		return err
	}
	if c.OpenTurn != "" {
		return db.NewSessionBusyError(op, c)
	}
	c.Log, c.Summary, c.Size.Summarized, c.UntrustedSource = nil, "", 0, ""
	c.Saved = c.LastSequence
	clear(c.Rounds)
	c.Scope.Clear()
	c.Artifacts.Clear()
	c.DropPendingCalls()
	for _, t := range c.TurnsByID {
		t.Recordings = nil
	}
	c.LastActivity = e.db.Now()
	return nil
}

// DeleteSession implements memory.Sessions.
func (e *Eraser) DeleteSession(_ context.Context, ref session.Ref) (memory.ErasureReport, error) {
	const op = "memory.DeleteSession"
	e.db.Lock()
	defer e.db.Unlock()
	c, err := e.db.GetSession(op, ref)
	if failure.Is(err, failure.SessionDeleted) {
		return e.db.Sessions[ref].ErasureReport, nil
	}
	if err != nil {
		return memory.ErasureReport{}, err
	}
	now := e.db.Now()
	erased := memory.ErasureReport{Session: ref.Session, Began: now, Ended: now, Remainders: []memory.Remainder{memory.SessionRemainder(now)}}
	waiting := int64(0)
	if e.db.FindTurn(c, c.WaitingTurn) != nil {
		waiting = 1
	}
	erased.Add(map[string]int64{
		memory.KindMessages: int64(len(c.Log)), memory.KindTurns: int64(c.Turns), memory.KindStateKeys: int64(len(c.Scope.Values)),
		memory.KindArtifacts: int64(len(c.Artifacts.Versions)), memory.KindArtifactBytes: c.Artifacts.TotalSize(), memory.KindWaiting: waiting,
	})
	e.db.Sessions[ref] = &db.Session{Epoch: c.Epoch, DeletedAt: now, ErasureReport: erased}
	return erased, nil
}

// EraseUser implements memory.Sessions. Unlike other stores, it need not reject late changes of the user's data:
// here a change of shared data is applied in the call that makes it.
func (e *Eraser) EraseUser(_ context.Context, tenant, user string) (memory.UserErasure, error) {
	e.db.Lock()
	defer e.db.Unlock()
	owner := db.Owner{Tenant: tenant, User: user}
	e.db.ErasingUsers[owner] = true
	var left []string
	for ref, c := range e.db.Sessions {
		if ref.Tenant == tenant && c.User == user && c.DeletedAt.IsZero() && len(left) < memory.MaxPage {
			left = append(left, ref.Session)
		}
	}
	if len(left) > 0 {
		return memory.UserErasure{Sessions: left}, nil
	}
	now := e.db.Now()
	erased := memory.ErasureReport{User: user, Began: now, Ended: now, Remainders: []memory.Remainder{memory.UserRemainder(now)}}
	if scope := e.db.Shared[owner]; scope != nil {
		erased.Add(map[string]int64{memory.KindUserState: int64(len(scope.Values))})
	}
	if set := e.db.Artifacts[owner]; set != nil {
		erased.Add(map[string]int64{memory.KindUserArtifacts: int64(len(set.Versions)), memory.KindUserBytes: set.TotalSize()})
	}
	delete(e.db.Shared, owner)
	delete(e.db.Artifacts, owner)
	delete(e.db.ErasingUsers, owner)
	return memory.UserErasure{Report: erased}, nil
}
