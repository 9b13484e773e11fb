package hook

import (
	"cmp"
	"context"

	"github.com/troupe-dev/troupe/internal/hookerror"
	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// runner runs the handlers of a turn. It has one method for each event. Each method returns the error of the first
// handler that fails, or else the error of an event that a handler emitted.
type runner struct {
	t   *Turn
	set *Set
}

func (r *runner) runTurnHandlers(ctx context.Context, all []boundHandler[turnFunc]) error {
	return r.orEventError(run(r.t, all, func(fn turnFunc) error { return fn(ctx, r.t) }))
}

// runReplyHandlers runs handlers that may return a text. It stops at the first text, error or Turn.End (AD-3). The
// state changes of all these handlers form one delta, and an error drops it (AD-5a, AD-18).
func (r *runner) runReplyHandlers(ctx context.Context, all []boundHandler[replyFunc]) (text string, err error) {
	revert := r.t.memory.snapshot()
	for _, h := range all {
		if err := r.t.recoverPanic(func() (err error) { text, err = h.fn(ctx, r.t); return err }); err != nil {
			revert()
			return "", hookerror.Wrap(h.fullName(), err)
		}
		if text != "" || r.t.progress.Ended() {
			break
		}
	}
	return text, r.t.events.Err()
}

// OnUserMessage runs the OnUserMessage handlers and returns the first text.
func (r *runner) OnUserMessage(ctx context.Context) (string, error) {
	return r.runReplyHandlers(ctx, r.set.run.onUserMessage)
}

// BeforeRun runs the BeforeRun handlers and returns the first text. A text ends the run.
func (r *runner) BeforeRun(ctx context.Context) (string, error) {
	return r.runEndingHandlers(ctx, r.set.run.before)
}

// AfterRun runs the handlers of a run that has ended.
func (r *runner) AfterRun(ctx context.Context, done *Completion) (err error) {
	for _, h := range r.set.run.after { // also in a turn that a handler has ended
		if err = r.t.recoverPanic(func() error { return h.fn(ctx, done) }); err != nil {
			return hookerror.Wrap(h.fullName(), err)
		}
	}
	return nil
}

// OnEvent runs the OnEvent handlers and returns the first replacement (nil if there is none).
func (r *runner) OnEvent(ctx context.Context, e event.Event) (replacement event.Payload, err error) {
	for _, h := range r.set.run.onEvent {
		err = r.t.recoverPanic(func() (err error) {
			if replacement, err = h.fn(ctx, r.t, e); err == nil && replacement != nil {
				replacement, err = turnstate.ReplaceTexts(e.Payload, replacement)
			}
			return err
		})
		if err != nil {
			return nil, hookerror.Wrap(h.fullName(), err)
		}
		if replacement != nil {
			break
		}
	}
	return replacement, nil
}

// BeforeAgent runs the BeforeAgent handlers and returns the first text. A text ends the turn (AD-4).
func (r *runner) BeforeAgent(ctx context.Context) (string, error) {
	return r.runEndingHandlers(ctx, r.set.turn.beforeAgent)
}

func (r *runner) runEndingHandlers(ctx context.Context, all []boundHandler[replyFunc]) (string, error) {
	text, err := r.runReplyHandlers(ctx, all)
	if text != "" || err != nil {
		r.t.progress.End()
	}
	return text, err
}

// AfterAgent runs the AfterAgent handlers and returns the first text. A text does not end the turn (C-29).
func (r *runner) AfterAgent(ctx context.Context) (string, error) {
	return r.runReplyHandlers(ctx, r.set.turn.afterAgent)
}

// AfterUserInput runs the handlers that follow the user's message.
func (r *runner) AfterUserInput(ctx context.Context) error {
	return r.runTurnHandlers(ctx, r.set.turn.afterUserInput)
}

// BeforeIteration runs the handlers that precede an iteration.
func (r *runner) BeforeIteration(ctx context.Context) error {
	return r.runTurnHandlers(ctx, r.set.iteration.before)
}

// AfterIteration runs the handlers that follow an iteration.
func (r *runner) AfterIteration(ctx context.Context) error {
	return r.runTurnHandlers(ctx, r.set.iteration.after)
}

// OnStopSignal runs the handlers of a turn that stops on request.
func (r *runner) OnStopSignal(ctx context.Context) error {
	return r.runTurnHandlers(ctx, r.set.turn.onStopSignal)
}

// BeforeLLM runs the BeforeLLM handlers until one of them responds in place of the model.
func (r *runner) BeforeLLM(ctx context.Context, req *LLMRequest) error {
	err := run(r.t, r.set.model.before, func(fn requestFunc) error {
		if req.Reply != nil {
			return nil
		}
		return fn(ctx, req)
	})
	return r.orEventError(err)
}

// AfterLLM runs the AfterLLM handlers. If the model asked for tools, messages that they add are held until the
// tools have run (C-11).
func (r *runner) AfterLLM(ctx context.Context, reply *LLMReply) error {
	return r.orEventError(run(r.t, r.set.model.after, func(fn answerFunc) error { return fn(ctx, reply) }))
}

// HandlesLLMError reports whether the agent has an OnLLMError handler.
func (r *runner) HandlesLLMError() bool { return len(r.set.model.onError) > 0 }

// OnLLMError runs the OnLLMError handlers until one of them responds in place of the model.
func (r *runner) OnLLMError(ctx context.Context, failed *LLMFailure) error {
	err := run(r.t, r.set.model.onError, func(fn errorFunc) error {
		if failed.Reply != nil {
			return nil
		}
		return fn(ctx, failed)
	})
	return r.orEventError(err)
}

// BeforeTools runs the handlers that precede a tool round.
func (r *runner) BeforeTools(ctx context.Context, round *Round) error {
	return r.orEventError(run(r.t, r.set.tools.beforeRound, func(fn roundFunc) error { return fn(ctx, round) }))
}

// AfterTools runs the handlers that follow a tool round.
func (r *runner) AfterTools(ctx context.Context, round *Round) error {
	return r.orEventError(run(r.t, r.set.tools.afterRound, func(fn roundFunc) error { return fn(ctx, round) }))
}

// BeforeEachTool runs the handlers of a call until one of them answers in place of the tool. A handler that makes
// the call wait does not end the list. An error of a handler fails only the tool. An error of the event consumer
// fails the turn: see Control.Events.Err.
func (r *runner) BeforeEachTool(ctx context.Context, call *Call) error {
	return run(r.t, r.set.tools.beforeEach, func(fn callFunc) error {
		if call.Status != "" && call.Status != event.ToolWaiting {
			return nil
		}
		return fn(ctx, call)
	})
}

// AfterEachTool runs the handlers that follow a tool. If the tool failed, the OnError handlers run first.
func (r *runner) AfterEachTool(ctx context.Context, call *Call) error {
	return r.orEventError(run(r.t, r.set.tools.afterEach, func(fn callFunc) error { return fn(ctx, call) }))
}

// OnError runs the handlers of a failed tool.
func (r *runner) OnError(ctx context.Context, call *Call) error {
	return r.orEventError(run(r.t, r.set.tools.onError, func(fn callFunc) error { return fn(ctx, call) }))
}

// OnComplete runs the handlers of a completed turn.
func (r *runner) OnComplete(ctx context.Context, done *Completion) error {
	return r.orEventError(run(r.t, r.set.turn.onComplete, func(fn completeFunc) error { return fn(ctx, done) }))
}

// Ready runs the handlers of OnAgentReady.
func (s *Set) Ready(a Agent) error {
	t := &Turn{progress: &turnstate.Progress{}, events: &turnstate.Events{}}
	for _, h := range s.turn.onAgentReady {
		if err := t.recoverPanic(func() error { return h.fn(a) }); err != nil {
			return failure.Newf(cmp.Or(failure.ModeOf(err), failure.AgentLogic), "hook."+h.event, "the handler %s failed: %s", h.fullName(), failure.PlainMessage(err)).
				Because(hookerror.Error{Err: err})
		}
	}
	return nil
}

// orEventError returns err if it is not nil, and otherwise the error of an event that a handler emitted.
func (r *runner) orEventError(err error) error {
	if err != nil {
		return err
	}
	return r.t.events.Err()
}
