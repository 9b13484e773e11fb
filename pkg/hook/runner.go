package hook

import (
	"context"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/event"
)

// runner runs the handlers of a turn. Each method with the name of an event runs the handlers of that event. It
// returns the error of the first handler that fails, or of an event that a handler emitted.
type runner struct {
	t   *Turn
	set *Set
}

func (r *runner) turn(ctx context.Context, all []boundHandler[turnFunc]) error {
	return r.orEventError(run(r.t, all, func(fn turnFunc) error { return fn(ctx, r.t) }))
}

// reply runs handlers that may answer. It stops at the first text, error or Turn.End (AD-3). All changes of state
// that the handlers request are one delta; an error drops it (AD-5a, AD-18).
func (r *runner) reply(ctx context.Context, all []boundHandler[replyFunc]) (text string, err error) {
	before := r.t.memory.snapshot()
	for _, h := range all {
		if err := r.t.recoverPanic(func() (err error) { text, err = h.fn(ctx, r.t); return err }); err != nil {
			r.t.memory.revert(before)
			return "", h.wrapError(err)
		}
		if text != "" || r.t.progress.Ended() {
			break
		}
	}
	return text, r.t.events.Err()
}

// BeforeAgent returns the text of the handler that answered, which ends the turn (AD-4).
func (r *runner) BeforeAgent(ctx context.Context) (string, error) {
	text, err := r.reply(ctx, r.set.turn.beforeAgent)
	if text != "" || err != nil {
		r.t.progress.End()
	}
	return text, err
}

// AfterAgent returns the text of the handler that added one. The turn does not end (C-29).
func (r *runner) AfterAgent(ctx context.Context) (string, error) {
	return r.reply(ctx, r.set.turn.afterAgent)
}

// AfterUserInput runs its handlers.
func (r *runner) AfterUserInput(ctx context.Context) error {
	return r.turn(ctx, r.set.turn.afterUserInput)
}

// BeforeIteration runs its handlers.
func (r *runner) BeforeIteration(ctx context.Context) error {
	return r.turn(ctx, r.set.iteration.before)
}

// AfterIteration runs its handlers.
func (r *runner) AfterIteration(ctx context.Context) error {
	return r.turn(ctx, r.set.iteration.after)
}

// OnStopSignal runs its handlers.
func (r *runner) OnStopSignal(ctx context.Context) error {
	return r.turn(ctx, r.set.turn.onStopSignal)
}

// BeforeLLM runs its handlers; the first that responds stops the rest.
func (r *runner) BeforeLLM(ctx context.Context, req *LLMRequest) error {
	err := run(r.t, r.set.model.before, func(fn requestFunc) error {
		if req.Reply != nil {
			return nil
		}
		return fn(ctx, req)
	})
	return r.orEventError(err)
}

// AfterLLM runs its handlers. Messages that they add wait, if the model asked for tools (C-11).
func (r *runner) AfterLLM(ctx context.Context, reply *LLMReply) error {
	return r.orEventError(run(r.t, r.set.model.after, func(fn answerFunc) error { return fn(ctx, reply) }))
}

// HandlesLLMError reports whether OnLLMError has a handler.
func (r *runner) HandlesLLMError() bool { return len(r.set.model.onError) > 0 }

// OnLLMError runs its handlers until one responds.
func (r *runner) OnLLMError(ctx context.Context, failed *LLMFailure) error {
	err := run(r.t, r.set.model.onError, func(fn errorFunc) error {
		if failed.Reply != nil {
			return nil
		}
		return fn(ctx, failed)
	})
	return r.orEventError(err)
}

// BeforeTools runs its handlers.
func (r *runner) BeforeTools(ctx context.Context, round *Round) error {
	return r.orEventError(run(r.t, r.set.tools.beforeRound, func(fn roundFunc) error { return fn(ctx, round) }))
}

// AfterTools runs its handlers.
func (r *runner) AfterTools(ctx context.Context, round *Round) error {
	return r.orEventError(run(r.t, r.set.tools.afterRound, func(fn roundFunc) error { return fn(ctx, round) }))
}

// BeforeEachTool runs its handlers until one answers for the tool. A handler that lets the call wait does not
// answer. Their error belongs to the tool. An error of the event consumer belongs to the turn: see
// Control.Events.Err.
func (r *runner) BeforeEachTool(ctx context.Context, call *Call) error {
	return run(r.t, r.set.tools.beforeEach, func(fn callFunc) error {
		if call.Status != "" && call.Status != event.ToolWaiting {
			return nil
		}
		return fn(ctx, call)
	})
}

// AfterEachTool runs its handlers. If the tool failed, the handlers of OnError run first.
func (r *runner) AfterEachTool(ctx context.Context, call *Call) error {
	return r.orEventError(run(r.t, r.set.tools.afterEach, func(fn callFunc) error { return fn(ctx, call) }))
}

// OnError runs its handlers.
func (r *runner) OnError(ctx context.Context, call *Call) error {
	return r.orEventError(run(r.t, r.set.tools.onError, func(fn callFunc) error { return fn(ctx, call) }))
}

// OnComplete runs its handlers.
func (r *runner) OnComplete(ctx context.Context, done *Completion) error {
	return r.orEventError(run(r.t, r.set.turn.onComplete, func(fn completeFunc) error { return fn(ctx, done) }))
}

// Ready runs the handlers of OnAgentReady.
func (s *Set) Ready(a Agent) error {
	return run(&Turn{progress: &turnstate.Progress{}, events: &turnstate.Events{}}, s.turn.onAgentReady, func(fn readyFunc) error { return fn(a) })
}

// orEventError returns err, or else the error of an event that a handler emitted.
func (r *runner) orEventError(err error) error {
	if err != nil {
		return err
	}
	return r.t.events.Err()
}
