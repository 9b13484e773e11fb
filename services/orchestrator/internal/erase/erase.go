// Package erase removes sessions and users from the memory service and the store of traces (guarantee S24,
// docs/adr/0036).
//
// An erasure first marks its subject in the store of traces. From then on, that store accepts no events of the
// subject. Once the memory service has deleted the subject, no commits are accepted either. Every step is
// idempotent. So another orchestrator that finds the mark can complete an interrupted erasure.
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

// Config has the dependencies of an Eraser.
type Config struct {
	Memory memory.Sessions
	Traces trace.Eraser
	// CancelTurn cancels the open turn of a session if this orchestrator runs it, so that its worker stops at
	// once. With nil, the turn is only fenced and fails at its next write. An unknown session, or one without an
	// open turn, is not an error.
	CancelTurn func(ctx context.Context, ref session.Ref) error
	Log        *zap.Logger
}

// Eraser erases sessions and users. It is safe for concurrent use, even by several orchestrators.
type Eraser struct{ cfg Config }

// New returns an eraser.
func New(cfg Config) *Eraser { return &Eraser{cfg} }

// Limits of the work.
const (
	concurrency = 4 // sessions of a user that are erased concurrently
	resumeBatch = 8 // interrupted erasures that one Resume call completes
)

// resumeInterval is the time between two searches for interrupted erasures.
const resumeInterval = 10 * time.Second

// EraseSession erases a session on behalf of by. It returns what was removed and what remains. If it fails after
// the session was marked, some orchestrator completes the erasure later. It fails with not_found when the session
// never existed.
func (e *Eraser) EraseSession(ctx context.Context, ref session.Ref, by string) (memory.ErasureReport, error) {
	if err := e.cancelOpenTurn(ctx, ref); err != nil {
		return memory.ErasureReport{}, err
	}
	if _, err := e.cfg.Memory.GetSession(ctx, ref); err != nil && !failure.Is(err, failure.SessionDeleted) {
		return memory.ErasureReport{}, err
	}
	return e.runSessionErasure(ctx, trace.Subject{Tenant: ref.Tenant, Session: ref.Session}, by, true)
}

// EraseUser erases all sessions of a user and the data that they share. If it fails after the user was marked,
// some orchestrator completes the erasure later. An unknown user is not an error.
func (e *Eraser) EraseUser(ctx context.Context, tenant, user, by string) (memory.ErasureReport, error) {
	return e.runUserErasure(ctx, trace.Subject{Tenant: tenant, User: user}, by, true)
}

// ResumePeriodically completes interrupted erasures until ctx ends.
func (e *Eraser) ResumePeriodically(ctx context.Context) {
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

// Resume completes some interrupted erasures. If one fails, it continues with the next.
func (e *Eraser) Resume(ctx context.Context) error {
	left, err := e.cfg.Traces.UnfinishedErasures(ctx, resumeBatch)
	if err != nil {
		return err
	}
	var failed error
	for _, subject := range left {
		e.cfg.Log.Info("resuming an erasure", zap.String("tenant", subject.Tenant),
			zap.String("session", subject.Session), zap.Bool("user", subject.User != ""))
		if subject.User != "" {
			_, err = e.runUserErasure(ctx, subject, "", false)
		} else {
			_, err = e.runSessionErasure(ctx, subject, "", true)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func (e *Eraser) cancelOpenTurn(ctx context.Context, ref session.Ref) error {
	if e.cfg.CancelTurn == nil {
		return nil
	}
	if err := e.cfg.CancelTurn(ctx, ref); err != nil && !failure.Is(err, failure.NotFound, failure.SessionDeleted) {
		return err
	}
	return nil
}

// runSessionErasure runs all steps of a session's erasure, including steps that are already done. deep includes
// the child sessions.
func (e *Eraser) runSessionErasure(ctx context.Context, subject trace.Subject, by string, deep bool) (memory.ErasureReport, error) {
	if _, err := e.cfg.Traces.BeginErasure(ctx, subject, by, false); err != nil {
		return memory.ErasureReport{}, err
	}
	had, err := e.cfg.Memory.DeleteSession(ctx, subject.Ref())
	if err != nil && !failure.Is(err, failure.NotFound) { // it may have expired
		return memory.ErasureReport{}, err
	}
	if err := e.cfg.Traces.AddRemoved(ctx, subject, "memory", had.Removed); err != nil {
		return memory.ErasureReport{}, err
	}
	if deep {
		if err := e.eraseChildren(ctx, subject, by); err != nil {
			return memory.ErasureReport{}, err
		}
	}
	if err := e.cfg.Traces.EraseTraces(ctx, subject.Ref()); err != nil {
		return memory.ErasureReport{}, err
	}
	return e.finishErasure(ctx, subject)
}

// eraseChildren erases all descendants of a session and counts each. It finds them through the traces of the
// session, so it runs before the traces are removed. The recursion ends, because the id of a child session begins
// with a digest of its parent.
func (e *Eraser) eraseChildren(ctx context.Context, parent trace.Subject, by string) error {
	ids, err := e.cfg.Traces.ChildSessions(ctx, parent.Ref())
	if err != nil {
		return err
	}
	return e.eraseSessions(ctx, parent, by, ids, true)
}

// runUserErasure runs all steps of a user's erasure. The last step removes the traces of sessions that have
// expired in the memory service. It only affects sessions from before the erasure, because the user may already
// have new ones.
func (e *Eraser) runUserErasure(ctx context.Context, subject trace.Subject, by string, anew bool) (memory.ErasureReport, error) {
	begun, err := e.cfg.Traces.BeginErasure(ctx, subject, by, anew)
	for err == nil {
		var left memory.UserErasure
		if left, err = e.cfg.Memory.EraseUser(ctx, subject.Tenant, subject.User); err != nil {
			break
		}
		if len(left.Sessions) == 0 {
			err = e.cfg.Traces.AddRemoved(ctx, subject, "memory", left.Report.Removed)
			break
		}
		err = e.eraseBatch(ctx, subject, begun.RequestedBy, left.Sessions)
	}
	for err == nil {
		var expired []string
		expired, err = e.cfg.Traces.SessionsOfUser(ctx, subject.Tenant, subject.User, begun.Began, memory.MaxPage)
		if err == nil && len(expired) == 0 {
			return e.finishErasure(ctx, subject)
		}
		if err == nil {
			err = e.eraseBatch(ctx, subject, begun.RequestedBy, expired)
		}
	}
	return memory.ErasureReport{}, err
}

// eraseBatch erases some of a user's sessions. It renews the mark, so that no other orchestrator resumes the
// erasure. Child sessions belong to the same user, so they are listed like other sessions and counted once.
func (e *Eraser) eraseBatch(ctx context.Context, user trace.Subject, by string, ids []string) error {
	if err := e.eraseSessions(ctx, user, by, ids, false); err != nil {
		return err
	}
	_, err := e.cfg.Traces.BeginErasure(ctx, user, by, false)
	return err
}

// eraseSessions erases sessions and adds them to the count of their user or parent session.
func (e *Eraser) eraseSessions(ctx context.Context, owner trace.Subject, by string, ids []string, deep bool) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(concurrency)
	for _, id := range ids {
		work.Go(func() (err error) {
			defer panics.Recover("erase", &err)
			subject := trace.Subject{Tenant: owner.Tenant, Session: id}
			if err := e.cancelOpenTurn(ctx, subject.Ref()); err != nil {
				return err
			}
			erased, err := e.runSessionErasure(ctx, subject, by, deep)
			if err != nil {
				return err
			}
			counts := maps.Clone(erased.Removed)
			if counts == nil {
				counts = map[string]int64{}
			}
			counts[memory.KindSessions]++
			return e.cfg.Traces.AddRemoved(ctx, owner, id, counts)
		})
	}
	return work.Wait()
}

// finishErasure ends an erasure whose steps are all done, and returns its receipt.
func (e *Eraser) finishErasure(ctx context.Context, subject trace.Subject) (memory.ErasureReport, error) {
	erased, err := e.cfg.Traces.EndErasure(ctx, subject)
	if err != nil {
		return memory.ErasureReport{}, err
	}
	if subject.User != "" {
		erased.Remainders = append(commonRemainders(erased.Ended), memory.UserRemainder(erased.Ended))
		return erased, nil
	}
	erased.Remainders = append(commonRemainders(erased.Ended), memory.SessionRemainder(erased.Ended), memory.Remainder{
		What: "state and artifacts whose names begin with user: or app:",
		Why:  "they are the user's and the tenant's; EraseUser removes the former",
	}, memory.Remainder{
		What: "sessions in which remote agents worked for it, in turns whose traces are kept no longer",
		Why:  "nothing leads from the session to them any more; EraseUser removes them with all others of the user",
	})
	return erased, nil
}

// commonRemainders lists the data that remain after every erasure.
func commonRemainders(ended time.Time) []memory.Remainder {
	return []memory.Remainder{
		{What: "the ids of its traces, and how many events they had", Why: "they keep late writers out", Until: ended.Add(memory.Retention)},
		{
			What: "lines with ids in the logs and in the audit log",
			Why:  "they say who erased it, and may quote failures and the reasons of cancellations; they go when the logs go",
		},
		{What: "the beginnings of questions and answers in logs at level debug, if that was on", Why: "they are for debugging; remove these logs"},
		{
			What: "bytes in the append-only file and in backups of Redis",
			Why:  "Redis keeps them until it rewrites the file (BGREWRITEAOF), and the mesh does not manage backups",
		},
		{What: "what agents, tools and model providers keep themselves", Why: "the mesh does not control it"},
		{
			What: "whole conversations in the folders evals and logs of --agent-log, which troupe dev has in .troupe",
			Why:  "they belong to the developer of the agent; remove these folders",
		},
	}
}
