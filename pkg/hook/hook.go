// Package hook has the events of a turn and the handlers that an author hangs on them.
//
// A turn goes through its events in this order; those in brackets only happen when there is
// a reason (CO-40):
//
//	BeforeAgent  AfterUserInput
//	  ┌─▶ BeforeIteration  BeforeLLM  [OnLLMError]  AfterLLM
//	  │     [BeforeTools  {BeforeEachTool  [OnError]  AfterEachTool}…  AfterTools]
//	  └── AfterIteration
//	[OnStopSignal]  AfterAgent  OnComplete
//
// OnAgentReady happens once, when the agent was made. Handlers of plugins come before the
// agent's own, each list in its order (CO-4). They run one at a time, on the goroutine of the
// turn. A handler that fails ends the turn with its error, which the caller gets (CO-41, C-10);
// only one of BeforeEachTool fails nothing but its tool (CO-36).
//
// A turn in which a call waits for somebody (Call.Wait) ends there: none of the events behind
// it happens. They do in the turn that goes on in its place, which begins anew.
//
// What a handler may do is the type of what it is given: every handler may read the turn, keep
// state of the agent's own and ask for changes of the session's; the model's request, its
// reply and a tool call can be changed by the handlers of their events alone.
//
// When a worker is lost, its successor goes through the turn again: models and tools are not
// asked anew (guarantees 2.8), but handlers run again. What a handler decides must follow
// from what it is given.
package hook

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Handler is a function for one event. Make one with the function that has the event's name.
type Handler struct {
	event   string
	add     func(*Set, named)
	missing bool // the function
}

// Plugin is a list of handlers that belong together.
type Plugin struct {
	Name     string // unique in an agent; stands in the errors of its handlers
	Handlers []Handler
	// Close frees what the plugin took, once no turn runs any more; nil: nothing.
	Close func() error
}

// named is whose handler something is.
type named struct{ event, plugin string }

// The kinds of handlers there are.
type (
	turnFunc     = func(context.Context, *Turn) error
	replyFunc    = func(context.Context, *Turn) (string, error)
	requestFunc  = func(context.Context, *LLMRequest) error
	answerFunc   = func(context.Context, *LLMReply) error
	errorFunc    = func(context.Context, *LLMFailure) error
	roundFunc    = func(context.Context, *Round) error
	callFunc     = func(context.Context, *Call) error
	completeFunc = func(context.Context, *Completion) error
	readyFunc    = func(Agent) error
)

// bound is a handler and whose it is.
type bound[F any] struct {
	named
	fn F
}

// Set has all handlers of an agent, by event and in the order in which they run. It does not
// change once it is made.
type Set struct {
	plugins []Plugin

	beforeAgent, afterAgent         []bound[replyFunc]
	afterUserInput                  []bound[turnFunc]
	beforeIteration, afterIteration []bound[turnFunc]
	onStopSignal                    []bound[turnFunc]
	beforeLLM                       []bound[requestFunc]
	afterLLM                        []bound[answerFunc]
	onLLMError                      []bound[errorFunc]
	beforeTools, afterTools         []bound[roundFunc]
	beforeEachTool, afterEachTool   []bound[callFunc]
	onError                         []bound[callFunc]
	onComplete                      []bound[completeFunc]
	onAgentReady                    []bound[readyFunc]
}

// NewSet returns the handlers of plugins and then those of the agent's own. Modes:
// agent_validation for a plugin without a name or with that of another, and for a handler
// that is not made by a function of this package or has no function (CO-5, AD-27).
func NewSet(plugins []Plugin, own []Handler) (*Set, error) {
	s := &Set{plugins: plugins}
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.AgentValidation, "hook.NewSet", format, args...)
	}
	seen := map[string]bool{}
	register := func(of, plugin string, handlers []Handler) error {
		for i, h := range handlers {
			if h.add == nil {
				return wrong("%s: handler %d belongs to no event; make it with a function of package hook, such as hook.AfterTools", of, i+1)
			}
			if h.missing {
				return wrong("%s: handler %d, of %s, has no function", of, i+1, h.event)
			}
			h.add(s, named{h.event, plugin})
		}
		return nil
	}
	for i, p := range plugins {
		switch {
		case strings.TrimSpace(p.Name) == "":
			return nil, wrong("plugins: number %d has no name", i+1)
		case seen[p.Name]:
			return nil, wrong("plugins: two are named %q; name one otherwise, or leave it out", p.Name)
		}
		seen[p.Name] = true
		if err := register("plugin "+p.Name, p.Name, p.Handlers); err != nil {
			return nil, err
		}
	}
	return s, register("handlers", "", own)
}

// Plugins are those of the set, in order.
func (s *Set) Plugins() []Plugin { return s.plugins }

// run calls the handlers of a turn one after the other, until one fails or ends the turn.
func run[F any](t *Turn, all []bound[F], call func(F) error) error {
	for _, h := range all {
		if t.ended {
			return nil
		}
		if err := t.contained(func() error { return call(h.fn) }); err != nil {
			return h.failed(err)
		}
	}
	return nil
}

// failed is the error of a handler: of the same mode and with the same facts, and it says
// whose it is.
func (n named) failed(err error) error {
	of := n.event
	if n.plugin != "" {
		of += " of plugin " + n.plugin
	}
	mode := failure.ModeOf(err)
	if mode == failure.Unknown {
		return failure.Newf(failure.AgentLogic, "hook."+n.event, "the handler %s failed; the log of the agent has the cause", of).Because(handlerError{err})
	}
	told := failure.Newf(mode, "hook."+n.event, "the handler %s failed: %s", of, failure.Plain(err)).Because(handlerError{err})
	if e, ok := errors.AsType[*failure.Error](err); ok {
		told.Facts = e.Facts
	}
	return told
}

// handlerError marks the error of a handler.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

// Failed reports whether an error is that of a handler, which ends its turn whatever the
// agent forgives (C-10).
func Failed(err error) bool {
	_, ok := errors.AsType[handlerError](err)
	return ok
}

// contained turns a panic of a handler into its error. One of who reads the event that the
// handler told is not the handler's, and goes on.
func (t *Turn) contained(call func() error) (err error) {
	defer func() {
		if t.away {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}
