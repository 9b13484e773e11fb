package hook

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/event"
)

// newHandler returns a handler of an event.
func newHandler[F any](event string, fn F, missing bool, list func(*Set) *[]boundHandler[F]) Handler {
	return Handler{event: event, hasNoFunction: missing, add: func(s *Set, n handlerName) {
		all := list(s)
		*all = append(*all, boundHandler[F]{n, fn})
	}}
}

// OnUserMessage runs first, once a run. A run is a step of the agent; agents inside of it have none of their own. Text that it returns
// is what the agent and the agents inside of it read instead of the user's message, and the handlers after it do not run (AD-25,
// AD-27). The session keeps what the user said.
func OnUserMessage(fn func(context.Context, *Turn) (string, error)) Handler {
	return newHandler("on_user_message", fn, fn == nil, func(s *Set) *[]boundHandler[replyFunc] { return &s.run.onUserMessage })
}

// BeforeRun runs once a run, before BeforeAgent. Text that it returns ends the run, as for BeforeAgent (AD-25, AD-27).
func BeforeRun(fn func(context.Context, *Turn) (string, error)) Handler {
	return newHandler("before_run", fn, fn == nil, func(s *Set) *[]boundHandler[replyFunc] { return &s.run.before })
}

// AfterRun runs last, once a run, however the run ended: Completion.Err says why it failed (AD-25, AD-27). In a run that was cancelled
// or took too long, its context has one second. An error fails a run that had not failed.
func AfterRun(fn func(context.Context, *Completion) error) Handler {
	return newHandler("after_run", fn, fn == nil, func(s *Set) *[]boundHandler[completeFunc] { return &s.run.after })
}

// OnEvent runs for each event of the run, those of agents inside of it included, before clients and other handlers see it. A payload
// of the same kind that it returns replaces the texts of the event, and the handlers after it do not run for this event (AD-27). An
// error ends the turn. It does not run for the event error, the last event, and events that it emits itself.
func OnEvent(fn func(context.Context, *Turn, event.Event) (event.Payload, error)) Handler {
	return newHandler("on_event", fn, fn == nil, func(s *Set) *[]boundHandler[eventFunc] { return &s.run.onEvent })
}

// BeforeAgent runs before everything else of a turn. Text that it returns is the agent's answer: neither the handlers after it, nor
// the agent, nor AfterAgent run then (AD-3, AD-4). An error does the same and ends the turn (AD-5).
func BeforeAgent(fn func(context.Context, *Turn) (string, error)) Handler {
	return newHandler("before_agent", fn, fn == nil, func(s *Set) *[]boundHandler[replyFunc] { return &s.turn.beforeAgent })
}

// AfterAgent runs when the agent has answered, unless the turn failed or was ended (AD-11, AD-12, C-12). Text that it returns is added
// after the answer, and the handlers after it do not run.
func AfterAgent(fn func(context.Context, *Turn) (string, error)) Handler {
	return newHandler("after_agent", fn, fn == nil, func(s *Set) *[]boundHandler[replyFunc] { return &s.turn.afterAgent })
}

// AfterUserInput runs once a turn, when the message of the user has arrived (CO-16).
func AfterUserInput(fn func(context.Context, *Turn) error) Handler {
	return newHandler("after_user_input", fn, fn == nil, func(s *Set) *[]boundHandler[turnFunc] { return &s.turn.afterUserInput })
}

// BeforeIteration runs before each iteration (CO-27).
func BeforeIteration(fn func(context.Context, *Turn) error) Handler {
	return newHandler("before_iteration", fn, fn == nil, func(s *Set) *[]boundHandler[turnFunc] { return &s.iteration.before })
}

// AfterIteration runs after each iteration, the last one included (CO-27).
func AfterIteration(fn func(context.Context, *Turn) error) Handler {
	return newHandler("after_iteration", fn, fn == nil, func(s *Set) *[]boundHandler[turnFunc] { return &s.iteration.after })
}

// BeforeLLM runs before each call of the model and may change the request (CO-25).
func BeforeLLM(fn func(context.Context, *LLMRequest) error) Handler {
	return newHandler("before_llm", fn, fn == nil, func(s *Set) *[]boundHandler[requestFunc] { return &s.model.before })
}

// AfterLLM runs after each call of the model and may change the reply (CO-25).
func AfterLLM(fn func(context.Context, *LLMReply) error) Handler {
	return newHandler("after_llm", fn, fn == nil, func(s *Set) *[]boundHandler[answerFunc] { return &s.model.after })
}

// OnLLMError runs when a call of the model failed, and may answer in its place (AD-31).
func OnLLMError(fn func(context.Context, *LLMFailure) error) Handler {
	return newHandler("on_llm_error", fn, fn == nil, func(s *Set) *[]boundHandler[errorFunc] { return &s.model.onError })
}

// BeforeTools runs once a round, before its first tool (CO-30).
func BeforeTools(fn func(context.Context, *Round) error) Handler {
	return newHandler("before_tools", fn, fn == nil, func(s *Set) *[]boundHandler[roundFunc] { return &s.tools.beforeRound })
}

// AfterTools runs once a round, after its last tool message (CO-34). It does not run in a round that was stopped (CO-63). In a round
// with calls that wait it runs when the turn continues.
func AfterTools(fn func(context.Context, *Round) error) Handler {
	return newHandler("after_tools", fn, fn == nil, func(s *Set) *[]boundHandler[roundFunc] { return &s.tools.afterRound })
}

// BeforeEachTool runs before each existing tool and may change its arguments, answer in its place, or let it wait for external input
// (AD-32). Its error fails only the tool (CO-36).
func BeforeEachTool(fn func(context.Context, *Call) error) Handler {
	return newHandler("before_each_tool", fn, fn == nil, func(s *Set) *[]boundHandler[callFunc] { return &s.tools.beforeEach })
}

// AfterEachTool runs after each tool, also one that failed, and then after OnError (CO-32).
func AfterEachTool(fn func(context.Context, *Call) error) Handler {
	return newHandler("after_each_tool", fn, fn == nil, func(s *Set) *[]boundHandler[callFunc] { return &s.tools.afterEach })
}

// OnError runs after each tool that failed or does not exist, and may change the text that the model reads (CO-35, AD-31).
func OnError(fn func(context.Context, *Call) error) Handler {
	return newHandler("on_error", fn, fn == nil, func(s *Set) *[]boundHandler[callFunc] { return &s.tools.onError })
}

// OnStopSignal runs once, when the turn stops on request (CO-63).
func OnStopSignal(fn func(context.Context, *Turn) error) Handler {
	return newHandler("on_stop_signal", fn, fn == nil, func(s *Set) *[]boundHandler[turnFunc] { return &s.turn.onStopSignal })
}

// OnComplete runs once for each turn that has an answer, when everything else is done (CO-53, C-12).
func OnComplete(fn func(context.Context, *Completion) error) Handler {
	return newHandler("on_complete", fn, fn == nil, func(s *Set) *[]boundHandler[completeFunc] { return &s.turn.onComplete })
}

// OnAgentReady runs once, at the end of the agent's construction, which its error fails (CO-8).
func OnAgentReady(fn func(Agent) error) Handler {
	return newHandler("on_agent_ready", fn, fn == nil, func(s *Set) *[]boundHandler[readyFunc] { return &s.turn.onAgentReady })
}
