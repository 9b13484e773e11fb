// Package hook defines the events of a turn and the handlers that an author registers for them.
//
// A turn goes through its events in this order; events in brackets happen only when there is a reason (CO-40):
//
//	OnUserMessage  BeforeRun  BeforeAgent  AfterUserInput
//	  ┌─▶ BeforeIteration  BeforeLLM  [OnLLMError]  AfterLLM
//	  │     [BeforeTools  {BeforeEachTool  [OnError]  AfterEachTool}…  AfterTools]
//	  └── AfterIteration
//	[OnStopSignal]  AfterAgent  OnComplete  AfterRun
//
// OnEvent runs for each event in between, and AfterRun however the run ended. OnAgentReady happens once, when the agent is
// created. Handlers of plugins run before the agent's own, each list in its order (CO-4). They run one at a time, on the
// goroutine of the turn. A handler that fails ends the turn, and the caller gets its error (CO-41, C-10). Only an error in
// BeforeEachTool fails no more than its tool (CO-36).
//
// A turn in which a call waits for external input (Call.Wait) ends there, and no later event happens. The turn that
// continues it begins anew and goes through all events.
//
// The type of its argument says what a handler may do. Every handler may read the turn, keep agent state and request
// changes of the session's state. Only the handlers of their own events may change the model's request, its reply and
// a tool call.
//
// When a worker is lost, its successor goes through the turn again. Models and tools are not called again
// (guarantees, section 2.8), but handlers are. So base what a handler decides only on what it is given.
package hook

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/troupe-dev/troupe/internal/hookerror"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Handler handles one event. Create it with the function named after the event, such as BeforeLLM.
type Handler struct {
	event         string
	add           func(*Set, handlerName)
	hasNoFunction bool // the author passed no function
}

// Plugin is a list of handlers that belong together.
type Plugin struct {
	Name     string // unique in an agent; appears in the errors of its handlers
	Handlers []Handler
	// Start acquires what the plugin needs while the agent runs, after the tools have started. Its error fails the start
	// (LC-37, nil does nothing). Stop releases it, in reverse order, if Start succeeded (nil does nothing).
	Start, Stop func(context.Context, Agent) error
	// Close releases the plugin's resources once no turn runs any more (nil when there are none).
	Close func() error
}

// handlerName holds the names of the event and the plugin of a handler.
type handlerName struct{ event, plugin string }

// The kinds of handlers.
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
	eventFunc    = func(context.Context, *Turn, event.Event) (event.Payload, error)
)

// boundHandler is a handler function with the names of its event and its plugin.
type boundHandler[F any] struct {
	handlerName
	fn F
}

// Set holds all handlers of an agent by event, in the order in which they run. A Set is immutable.
type Set struct {
	plugins   []Plugin
	run       runHandlers
	turn      turnHandlers
	iteration iterationHandlers
	model     modelHandlers
	tools     toolHandlers
}

type runHandlers struct {
	onUserMessage, before []boundHandler[replyFunc]
	onEvent               []boundHandler[eventFunc]
	after                 []boundHandler[completeFunc]
}

type turnHandlers struct {
	beforeAgent, afterAgent      []boundHandler[replyFunc]
	afterUserInput, onStopSignal []boundHandler[turnFunc]
	onComplete                   []boundHandler[completeFunc]
	onAgentReady                 []boundHandler[readyFunc]
}

type iterationHandlers struct{ before, after []boundHandler[turnFunc] }

type modelHandlers struct {
	before  []boundHandler[requestFunc]
	after   []boundHandler[answerFunc]
	onError []boundHandler[errorFunc]
}

type toolHandlers struct {
	beforeRound, afterRound        []boundHandler[roundFunc]
	beforeEach, afterEach, onError []boundHandler[callFunc]
}

// NewSet returns the handlers of plugins, followed by the agent's own. It fails with agent_validation for a plugin
// without a name or with the name of another, and for a handler without a function or not made by a function of this
// package (CO-5, AD-27).
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
			if h.hasNoFunction {
				return wrong("%s: handler %d, of %s, has no function", of, i+1, h.event)
			}
			h.add(s, handlerName{h.event, plugin})
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

// Plugins returns the plugins of the set, in order.
func (s *Set) Plugins() []Plugin { return s.plugins }

// run calls handlers in order until one fails or ends the turn.
func run[F any](t *Turn, all []boundHandler[F], call func(F) error) error {
	for _, h := range all {
		if t.progress.Ended() {
			return nil
		}
		if err := t.recoverPanic(func() error { return call(h.fn) }); err != nil {
			return hookerror.Wrap(h.fullName(), err)
		}
	}
	return nil
}

// fullName returns the name of the event, and of the plugin if the handler has one.
func (n handlerName) fullName() string {
	if n.plugin != "" {
		return n.event + " of plugin " + n.plugin
	}
	return n.event
}

// recoverPanic calls a handler and returns its panic as an error. It does not recover a panic in the consumer of
// an event that the handler emitted.
func (t *Turn) recoverPanic(call func() error) (err error) {
	defer func() {
		if t.events.IsDelivering() {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}
