package hook

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/event"
)

// The methods of Control with the name of an event run its handlers. They return the error
// of the first that fails, or that of an event that a handler told.

func (c *Control) turn(ctx context.Context, all []bound[turnFunc]) error {
	return c.heard(run(c.t, all, func(fn turnFunc) error { return fn(ctx, c.t) }))
}

// reply runs handlers that may answer: the first text, the first error and an end stop the
// rest (AD-3). All changes of state that they ask for are one delta; an error drops it
// (AD-5a, AD-18).
func (c *Control) reply(ctx context.Context, all []bound[replyFunc]) (text string, err error) {
	before := c.t.memory.mark()
	for _, h := range all {
		if err := c.t.contained(func() (err error) { text, err = h.fn(ctx, c.t); return err }); err != nil {
			c.t.memory.revert(before)
			return "", h.failed(err)
		}
		if text != "" || c.t.ended {
			break
		}
	}
	return text, c.t.deaf
}

// BeforeAgent returns the text of a handler that answered; the turn is ended then (AD-4).
func (c *Control) BeforeAgent(ctx context.Context) (string, error) {
	text, err := c.reply(ctx, c.set.beforeAgent)
	if text != "" || err != nil {
		c.t.ended = true
	}
	return text, err
}

// AfterAgent returns the text of a handler that had something to say. It does not end the
// turn (C-29).
func (c *Control) AfterAgent(ctx context.Context) (string, error) {
	return c.reply(ctx, c.set.afterAgent)
}

// AfterUserInput runs its handlers.
func (c *Control) AfterUserInput(ctx context.Context) error {
	return c.turn(ctx, c.set.afterUserInput)
}

// BeforeIteration runs its handlers.
func (c *Control) BeforeIteration(ctx context.Context) error {
	return c.turn(ctx, c.set.beforeIteration)
}

// AfterIteration runs its handlers.
func (c *Control) AfterIteration(ctx context.Context) error {
	return c.turn(ctx, c.set.afterIteration)
}

// OnStopSignal runs its handlers.
func (c *Control) OnStopSignal(ctx context.Context) error {
	return c.turn(ctx, c.set.onStopSignal)
}

// BeforeLLM runs its handlers; the first that responds stops the rest.
func (c *Control) BeforeLLM(ctx context.Context, req *LLMRequest) error {
	err := run(c.t, c.set.beforeLLM, func(fn requestFunc) error {
		if req.Reply != nil {
			return nil
		}
		return fn(ctx, req)
	})
	return c.heard(err)
}

// AfterLLM runs its handlers. What they add waits, if the model asked for tools (C-11).
func (c *Control) AfterLLM(ctx context.Context, reply *LLMReply) error {
	return c.heard(run(c.t, c.set.afterLLM, func(fn answerFunc) error { return fn(ctx, reply) }))
}

// HandlesLLMError reports whether there is somebody to go on when a model fails.
func (c *Control) HandlesLLMError() bool { return len(c.set.onLLMError) > 0 }

// OnLLMError runs its handlers until one responds.
func (c *Control) OnLLMError(ctx context.Context, failed *LLMFailure) error {
	err := run(c.t, c.set.onLLMError, func(fn errorFunc) error {
		if failed.Reply != nil {
			return nil
		}
		return fn(ctx, failed)
	})
	return c.heard(err)
}

// BeforeTools runs its handlers.
func (c *Control) BeforeTools(ctx context.Context, r *Round) error {
	return c.heard(run(c.t, c.set.beforeTools, func(fn roundFunc) error { return fn(ctx, r) }))
}

// AfterTools runs its handlers.
func (c *Control) AfterTools(ctx context.Context, r *Round) error {
	return c.heard(run(c.t, c.set.afterTools, func(fn roundFunc) error { return fn(ctx, r) }))
}

// BeforeEachTool runs its handlers until one answers for the tool; one that lets it wait does
// not. Their error is the tool's; only that nobody hears events is the turn's, which Heard tells.
func (c *Control) BeforeEachTool(ctx context.Context, call *Call) error {
	return run(c.t, c.set.beforeEachTool, func(fn callFunc) error {
		if call.Status != "" && call.Status != event.ToolWaiting {
			return nil
		}
		return fn(ctx, call)
	})
}

// AfterEachTool runs its handlers, behind those of OnError when the tool failed.
func (c *Control) AfterEachTool(ctx context.Context, call *Call) error {
	return c.heard(run(c.t, c.set.afterEachTool, func(fn callFunc) error { return fn(ctx, call) }))
}

// OnError runs its handlers.
func (c *Control) OnError(ctx context.Context, call *Call) error {
	return c.heard(run(c.t, c.set.onError, func(fn callFunc) error { return fn(ctx, call) }))
}

// OnComplete runs its handlers.
func (c *Control) OnComplete(ctx context.Context, done *Completion) error {
	return c.heard(run(c.t, c.set.onComplete, func(fn completeFunc) error { return fn(ctx, done) }))
}

// Ready runs the handlers of OnAgentReady.
func (s *Set) Ready(a Agent) error {
	return run(&Turn{}, s.onAgentReady, func(fn readyFunc) error { return fn(a) })
}

// heard is err, or else that of an event that a handler told.
func (c *Control) heard(err error) error {
	if err != nil {
		return err
	}
	return c.t.deaf
}
