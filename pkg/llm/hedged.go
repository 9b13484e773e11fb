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
func (m hedged) Name() string { return m.first.Name() }

// ContextSize returns the smaller context size of the two models, because either may have to answer.
func (m hedged) ContextSize() int64 { return min(ContextOf(m.first), ContextOf(m.second)) }

// Generate implements Model.
func (m hedged) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		r := &race{said: make(chan racerUpdate)}
		defer r.running.Wait()
		defer r.stop(nil)

		r.start(ctx, m.first, req)
		timer := time.NewTimer(m.after)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				yield(Delta{}, ctx.Err())
				return
			case <-timer.C:
				if r.winner == nil {
					r.start(ctx, m.second, req)
				}
			case n := <-r.said:
				if r.yieldUpdate(n, m.Name(), yield) {
					return
				}
			}
		}
	}
}

// race runs two requests, one of which will answer. Only Generate starts and cancels its racers.
type race struct {
	said    chan racerUpdate
	running sync.WaitGroup
	racers  []*racer
	failed  int
	winner  *racer
}

type racer struct {
	model Model
	end   context.CancelFunc
}

// racerUpdate is a delta of a racer, or its end.
type racerUpdate struct {
	by    *racer
	delta Delta
	done  bool
	err   error // why the racer failed; only with done
}

// start runs a model in a goroutine. The goroutine sends each delta to updates before it reads the next one.
func (r *race) start(ctx context.Context, m Model, req Request) {
	ctx, end := context.WithCancel(ctx)
	by := &racer{m, end}
	r.racers = append(r.racers, by)
	tell := func(n racerUpdate) bool {
		n.by = by
		select {
		case r.said <- n:
			return true
		case <-ctx.Done():
			return false
		}
	}
	r.running.Go(func() {
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
func (r *race) stop(but *racer) {
	for _, other := range r.racers {
		if other != but {
			other.end()
		}
	}
}

// yieldUpdate yields the delta or the error of an update, unless another racer has won. It returns true if nothing
// more must be yielded.
func (r *race) yieldUpdate(n racerUpdate, name string, yield func(Delta, error) bool) (all bool) {
	if r.winner != nil && n.by != r.winner {
		return false
	}
	if n.err != nil {
		if r.failed++; r.winner == nil && r.failed < len(r.racers) {
			return false // the other one may still answer
		}
		yield(Delta{}, n.err)
		return true
	}
	if r.winner == nil && (n.done || n.delta.says()) {
		r.winner = n.by
		r.stop(n.by)
		if n.by.model.Name() != name && n.delta.Model == "" {
			n.delta.Model = n.by.model.Name()
		}
	}
	return n.done || !yield(n.delta, nil)
}
