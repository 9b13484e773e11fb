// Package erase removes sessions and users from both tiers (guarantee S24, docs/adr/0036).
//
// What is to be erased is marked in the store first. From then on the orchestrators' store takes
// no event of it, and once the memory service has deleted it no commit either. Every step can be
// done again, so that an erasure whose orchestrator goes away is ended by another one, which finds
// the mark.
package erase

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Config is what an Eraser works with.
type Config struct {
	Memory memory.Sessions
	Traces trace.Erasures
	// Cancel ends the open turn of a session that this orchestrator drives, so that its worker
	// stops at once; nil: the turn is fenced, and ends when it writes next. A session without an
	// open turn, or that is not known, is no error.
	Cancel func(ctx context.Context, ref session.Ref) error
	Log    *zap.Logger
}

// Eraser erases. Safe for concurrent use, also by several orchestrators at once.
type Eraser struct{ cfg Config }

// New returns an eraser.
func New(cfg Config) *Eraser { return &Eraser{cfg} }

// Bounds of the work.
const (
	concurrency = 4 // sessions of a user that are erased concurrently
	resumeBatch = 8 // abandoned erasures that one Resume takes
)

// resumeInterval is the time between two searches for abandoned erasures.
const resumeInterval = 10 * time.Second

// Session erases a session on behalf of by, and returns what was removed and what remains. If it fails after the
// session was marked, some orchestrator finishes the erasure later. Modes: not_found when there never was
// such a session.
func (e *Eraser) Session(ctx context.Context, ref session.Ref, by string) (memory.Erasure, error) {
	if err := e.cancel(ctx, ref); err != nil {
		return memory.Erasure{}, err
	}
	if _, err := e.cfg.Memory.GetSession(ctx, ref); err != nil && !failure.Is(err, failure.SessionDeleted) {
		return memory.Erasure{}, err
	}
	return e.eraseSession(ctx, trace.Subject{Tenant: ref.Tenant, Session: ref.Session}, by, true)
}

// User erases all sessions of a user, and what they share. When it fails behind its mark, some
// orchestrator ends it. A user of whom nothing is known is fine.
func (e *Eraser) User(ctx context.Context, tenant, user, by string) (memory.Erasure, error) {
	return e.eraseUser(ctx, trace.Subject{Tenant: tenant, User: user}, by, true)
}

// Maintain finishes abandoned erasures until ctx ends.
func (e *Eraser) Maintain(ctx context.Context) {
	look := time.NewTicker(resumeInterval)
	defer look.Stop()
	for {
		if err := e.Resume(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("could not finish abandoned erasures; an orchestrator retries in "+resumeInterval.String(), zap.Error(err))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Resume finishes some abandoned erasures. One that fails does not stop the others.
func (e *Eraser) Resume(ctx context.Context) error {
	left, err := e.cfg.Traces.UnfinishedErasures(ctx, resumeBatch)
	if err != nil {
		return err
	}
	var failed error
	for _, subject := range left {
		e.cfg.Log.Info("resuming an erasure", zap.String("tenant", subject.Tenant), zap.String("session", subject.Session), zap.Bool("user", subject.User != ""))
		if subject.User != "" {
			_, err = e.eraseUser(ctx, subject, "", false)
		} else {
			_, err = e.eraseSession(ctx, subject, "", true)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func (e *Eraser) cancel(ctx context.Context, ref session.Ref) error {
	if e.cfg.Cancel == nil {
		return nil
	}
	if err := e.cfg.Cancel(ctx, ref); err != nil && !failure.Is(err, failure.NotFound, failure.SessionDeleted) {
		return err
	}
	return nil
}

// eraseSession goes through all steps of a session's erasure, whichever were done before; deep: also of
// the sessions below it.
func (e *Eraser) eraseSession(ctx context.Context, subject trace.Subject, by string, deep bool) (memory.Erasure, error) {
	if _, err := e.cfg.Traces.BeginErasure(ctx, subject, by, false); err != nil {
		return memory.Erasure{}, err
	}
	had, err := e.cfg.Memory.DeleteSession(ctx, subject.Ref())
	if err != nil && !failure.Is(err, failure.NotFound) { // its mark may be older than this one
		return memory.Erasure{}, err
	}
	if err := e.cfg.Traces.AddRemoved(ctx, subject, "memory", had.Removed); err != nil {
		return memory.Erasure{}, err
	}
	if deep {
		if err := e.eraseChildren(ctx, subject, by); err != nil {
			return memory.Erasure{}, err
		}
	}
	if err := e.cfg.Traces.EraseTraces(ctx, subject.Ref()); err != nil {
		return memory.Erasure{}, err
	}
	return e.finish(ctx, subject)
}

// eraseChildren erases the sessions in which agents worked for a session, and those below them, and counts
// each. They are found by the traces of the session, so it is done before those go. It has an end:
// the ids of the sessions below one begin with a digest of its own.
func (e *Eraser) eraseChildren(ctx context.Context, above trace.Subject, by string) error {
	ids, err := e.cfg.Traces.ChildSessions(ctx, above.Ref())
	if err != nil {
		return err
	}
	return e.eraseSessions(ctx, above, by, ids, true)
}

// eraseUser goes through all steps of a user's erasure. Last come sessions that had expired, of which the
// memory service has nothing any more: only those of before, as the user may begin new ones by then.
func (e *Eraser) eraseUser(ctx context.Context, subject trace.Subject, by string, anew bool) (memory.Erasure, error) {
	begun, err := e.cfg.Traces.BeginErasure(ctx, subject, by, anew)
	for err == nil {
		var left memory.ErasedUser
		if left, err = e.cfg.Memory.EraseUser(ctx, subject.Tenant, subject.User); err != nil {
			break
		}
		if len(left.Sessions) == 0 {
			err = e.cfg.Traces.AddRemoved(ctx, subject, "memory", left.Erasure.Removed)
			break
		}
		err = e.eraseBatch(ctx, subject, begun.By, left.Sessions)
	}
	for err == nil {
		var expired []string
		expired, err = e.cfg.Traces.SessionsOfUser(ctx, subject.Tenant, subject.User, begun.Began, memory.MaxPage)
		if err == nil && len(expired) == 0 {
			return e.finish(ctx, subject)
		}
		if err == nil {
			err = e.eraseBatch(ctx, subject, begun.By, expired)
		}
	}
	return memory.Erasure{}, err
}

// eraseBatch erases some of a user's sessions, and renews the mark, so that no other orchestrator resumes the erasure.
// Child sessions belong to the same user, so they are listed themselves and count once.
func (e *Eraser) eraseBatch(ctx context.Context, user trace.Subject, by string, ids []string) error {
	if err := e.eraseSessions(ctx, user, by, ids, false); err != nil {
		return err
	}
	_, err := e.cfg.Traces.BeginErasure(ctx, user, by, false)
	return err
}

// eraseSessions erases sessions of a user, or below another one, and counts them there.
func (e *Eraser) eraseSessions(ctx context.Context, whose trace.Subject, by string, ids []string, deep bool) error {
	at, within := errgroup.WithContext(ctx)
	at.SetLimit(concurrency)
	for _, id := range ids {
		at.Go(func() (err error) {
			defer panics.Recover("erase", &err)
			of := trace.Subject{Tenant: whose.Tenant, Session: id}
			if err := e.cancel(within, of.Ref()); err != nil {
				return err
			}
			erased, err := e.eraseSession(within, of, by, deep)
			if err != nil {
				return err
			}
			counts := maps.Clone(erased.Removed)
			if counts == nil {
				counts = map[string]int64{}
			}
			counts[memory.KindSessions]++
			return e.cfg.Traces.AddRemoved(within, whose, id, counts)
		})
	}
	return at.Wait()
}

// finish ends an erasure whose steps are all done.
func (e *Eraser) finish(ctx context.Context, subject trace.Subject) (memory.Erasure, error) {
	erased, err := e.cfg.Traces.EndErasure(ctx, subject)
	if err != nil {
		return memory.Erasure{}, err
	}
	if subject.User != "" {
		erased.Remains = append(commonRemainders(erased.Ended), memory.UserRemainder(erased.Ended))
		return erased, nil
	}
	erased.Remains = append(commonRemainders(erased.Ended), memory.SessionRemainder(erased.Ended), memory.Remainder{
		What: "state and artifacts whose names begin with user: or app:",
		Why:  "they are the user's and the tenant's; EraseUser removes the former",
	}, memory.Remainder{
		What: "sessions in which remote agents worked for it, in turns whose traces are kept no longer",
		Why:  "nothing leads from the session to them any more; EraseUser removes them with all others of the user",
	})
	return erased, nil
}

// commonRemainders is what is there behind every erasure.
func commonRemainders(ended time.Time) []memory.Remainder {
	return []memory.Remainder{
		{What: "the ids of its traces, and how many events they had", Why: "they keep late writers out", Until: ended.Add(memory.Retention)},
		{What: "lines with ids in the logs and in the audit log", Why: "they say who erased it, and may quote failures and the reasons of cancellations; they go when the logs go"},
		{What: "the beginnings of questions and answers in logs at level debug, if that was on", Why: "they are for who looks for a fault; remove these logs"},
		{What: "bytes in the append-only file and in backups of Redis", Why: "Redis leaves them until it rewrites the file (BGREWRITEAOF), and backups are not the mesh's"},
		{What: "what agents, tools and model providers keep themselves", Why: "the mesh does not know of it"},
		{What: "whole conversations in the folders evals and logs of --agent-log, which troupe dev has in .troupe", Why: "they are the developer's of the agent; remove these folders"},
	}
}
