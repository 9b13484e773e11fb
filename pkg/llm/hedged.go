package llm

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/panics"
)

// Hedged returns a model that asks the first model, and also the second one if the first has sent no content
// within the given time. The model that sends content first answers, and the other request is cancelled. Both may
// be the same model. The usage is the sum of what both report, but a provider may bill more for the cancelled
// request. The result has the name of the first model. Delta.Model says when the second one answers. Hedged does
// not retry failed requests; see Retried and Failover.
func Hedged(first, second Model, after time.Duration) Model { return hedged{first, second, after} }

type hedged struct {
	first, second Model
	after         time.Duration
}

// Name implements Model.
func (h hedged) Name() string { return h.first.Name() }

// ContextSize returns the smaller context size of the two models, because either may have to answer.
func (h hedged) ContextSize() int64 { return min(ContextSizeOf(h.first), ContextSizeOf(h.second)) }

// Generate implements Model.
func (h hedged) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		r := &askHedged{updates: make(chan racerUpdate)}
		defer r.running.Wait()
		defer r.cancelAllExcept(nil)

		r.start(ctx, h.first, req)
		timer := time.NewTimer(h.after)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				yield(Delta{}, ctx.Err())
				return
			case <-timer.C:
				if r.winner == nil {
					r.start(ctx, h.second, req)
				}
			case n := <-r.updates:
				if r.yieldUpdate(n, h.Name(), yield) {
					return
				}
			}
		}
	}
}

// askHedged runs two requests, one of which will answer. Only Generate starts and cancels its racers.
type askHedged struct {
	updates      chan racerUpdate
	running      sync.WaitGroup
	racers       []*racer
	failureCount int
	winner       *racer
}

type racer struct {
	model  Model
	cancel context.CancelFunc
}

// racerUpdate is a delta of a racer, or its end.
type racerUpdate struct {
	from  *racer
	delta Delta
	done  bool
	err   error // why the racer failed; only with done
}

// start runs a model in a goroutine. The goroutine sends each delta to updates before it reads the next one.
func (a *askHedged) start(ctx context.Context, m Model, req Request) {
	ctx, end := context.WithCancel(ctx)
	by := &racer{m, end}
	a.racers = append(a.racers, by)
	tell := func(n racerUpdate) bool {
		n.from = by
		select {
		case a.updates <- n:
			return true
		case <-ctx.Done():
			return false
		}
	}
	a.running.Go(func() {
		tell(racerUpdate{done: true, err: sendDeltas(ctx, m, req, func(d Delta) bool { return tell(racerUpdate{delta: d}) })})
	})
}

// sendDeltas passes the deltas of a model to hand. A panic becomes an error, because in this goroutine it would
// end the process.
func sendDeltas(ctx context.Context, m Model, req Request, hand func(Delta) bool) (err error) {
	defer panics.Recover("llm.Hedged", &err)
	for d, err := range m.Generate(ctx, req) {
		if err != nil {
			return err
		}
		if !hand(d) {
			return nil
		}
	}
	return nil
}

// cancelAllExcept cancels all racers except winner, which may be nil.
func (a *askHedged) cancelAllExcept(but *racer) {
	for _, other := range a.racers {
		if other != but {
			other.cancel()
		}
	}
}

// yieldUpdate yields the delta or the error of an update, unless another racer has won. It returns true if nothing
// more must be yielded.
func (a *askHedged) yieldUpdate(n racerUpdate, name string, yield func(Delta, error) bool) (all bool) {
	if a.winner != nil && n.from != a.winner {
		return false
	}
	if n.err != nil {
		if a.failureCount++; a.winner == nil && a.failureCount < len(a.racers) {
			return false // the other one may still answer
		}
		yield(Delta{}, n.err)
		return true
	}
	if a.winner == nil && (n.done || n.delta.hasContent()) {
		a.winner = n.from
		a.cancelAllExcept(n.from)
		if n.from.model.Name() != name && n.delta.Model == "" {
			n.delta.Model = n.from.model.Name()
		}
	}
	return n.done || !yield(n.delta, nil)
}
