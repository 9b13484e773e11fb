package hook

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Control is the other side of a Turn: what moves it on. Package agent makes it and package
// loop drives it; handlers never get it.
type Control struct {
	t   *Turn
	set *Set
}

// Start is what a turn begins with. All fields may be left out.
type Start struct {
	Info     Info
	Handlers *Set
	Messages []conversation.Message // oldest first; not changed
	State    *ownership.AgentState
	Config   *ownership.Config
	Memory   *Memory
	Trace    ownership.TraceView
	// Emit is told every event, in order. Its error is that of the call that caused the event.
	Emit func(event.Event) error
	// Numbers counts the events of the invocation; agents of one flow share it.
	Numbers *Numbers
}

// Numbers counts the events of an invocation. Safe for concurrent use.
type Numbers struct{ last atomic.Int64 }

func (n *Numbers) next() int { return int(n.last.Add(1)) }

// New returns the control of a turn that has not begun.
func New(s Start) *Control {
	t := &Turn{
		info: s.Info, state: s.State, trace: s.Trace, emit: s.Emit, numbers: s.Numbers,
		memory:   s.Memory,
		messages: append(make([]conversation.Message, 0, len(s.Messages)+4), s.Messages...),
	}
	if t.state == nil {
		t.state = ownership.NewAgentState(s.Info.Agent, nil, nil)
	}
	if t.numbers == nil {
		t.numbers = &Numbers{}
	}
	if t.memory == nil {
		t.memory = NewMemory(nil, s.Info.Agent)
	}
	t.config = s.Config
	if t.config == nil {
		t.config = ownership.NewConfig(s.Info.Agent, "")
	}
	t.state, t.config = t.state.Telling(t.trespass), t.config.Telling(t.trespass)
	t.memory.tell(t.trespass)
	set := s.Handlers
	if set == nil {
		set = &Set{}
	}
	return &Control{t, set}
}

// Listen sets who is told events, and returns who was.
func (c *Control) Listen(emit func(event.Event) error) (before func(event.Event) error) {
	before, c.t.emit = c.t.emit, emit
	return before
}

// Turn is what handlers are given.
func (c *Control) Turn() *Turn { return c.t }

// Emit tells an event. All but those that pass become entries of the trace.
func (c *Control) Emit(p event.Payload) error {
	c.t.tell(p)
	return c.t.deaf
}

// Heard is why nobody hears events any more; nil while somebody does.
func (c *Control) Heard() error { return c.t.deaf }

// Pass tells an event that somebody else made, and fills in what is missing: its place, its
// time and its author (AD-9).
func (c *Control) Pass(e event.Event) error {
	if c.t.deaf == nil {
		c.t.deaf = c.t.pass(e)
	}
	return c.t.deaf
}

func (t *Turn) pass(e event.Event) error {
	for _, v := range t.trespasses() { // which were before it
		if err := t.pass(event.Event{Payload: v}); err != nil {
			return err
		}
	}
	if e.Sequence == 0 {
		e.Invocation, e.Step, e.Sequence = t.info.TurnID, t.info.Step, t.numbers.next()
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Author == "" {
		e.Author, e.Branch = t.info.Agent, t.info.Branch
	}
	p := e.Payload
	if !event.Passing(p) {
		t.entries = append(t.entries, e)
	}
	if t.emit == nil {
		return nil
	}
	t.away = true
	err := t.emit(e)
	t.away = false
	return err
}

// Iterate begins the next iteration and returns its number.
func (c *Control) Iterate() int {
	c.t.iteration++
	return c.t.iteration
}

// Append adds a message of the model or a tool to the conversation.
func (c *Control) Append(m conversation.Message) { c.t.messages = append(c.t.messages, m) }

// Amend changes the text of the last message.
func (c *Control) Amend(text string) { c.t.messages[len(c.t.messages)-1].Text = text }

// Told tells the last message.
func (c *Control) Told() error {
	return c.Emit(event.Appended{Message: c.t.messages[len(c.t.messages)-1]})
}

// Hold keeps back what handlers add, until Release.
func (c *Control) Hold() { c.t.holding = true }

// Open begins the round of these calls, until Release.
func (c *Control) Open(calls []conversation.ToolCall) { c.t.round, c.t.holding = calls, true }

// Release lets what handlers added into the conversation: every call has its result.
func (c *Control) Release() {
	c.t.round, c.t.holding = nil, false
	c.t.messages = append(c.t.messages, c.t.held...)
	c.t.held = nil
}

// Pend shows the call that is about to run, in BeforeEachTool; nil: there is none.
func (c *Control) Pend(call *conversation.ToolCall) { c.t.pending = call }

// Ran notes that a tool ran.
func (c *Control) Ran(tool string) { c.t.tools = append(c.t.tools, tool) }

// Use notes what a model call of the conversation consumed; aside is one of a handler's.
func (c *Control) Use(u execution.Usage, aside bool) {
	c.t.usage = c.t.usage.Add(u)
	if !aside {
		c.t.context = u.InputTokens
	}
}

// Asks sets what Turn.Ask does.
func (c *Control) Asks(ask func(context.Context, llm.Request) (conversation.Message, error)) {
	c.t.ask = ask
}

// Stopping is why the turn is to stop; empty while it is to go on.
func (c *Control) Stopping() string { return c.t.stop }

// Ended reports whether a handler ended the turn.
func (c *Control) Ended() bool { return c.t.ended }

// Changes tells the changes of state and artifacts that no event has told yet, with a text
// that goes with them. Without any of these there is no event (AD-6, AD-7).
func (c *Control) Changes(text string) error {
	state, artifacts := c.t.memory.take()
	if text == "" && len(state) == 0 && len(artifacts) == 0 {
		return nil
	}
	return c.Emit(event.Message{Text: text, State: state, Artifacts: artifacts})
}

// Absorb takes over what a tool changed in a fork of the turn's memory.
func (c *Control) Absorb(fork *Memory) { c.t.memory.absorb(fork) }

// Unkept are the changes of state that no journal has yet: what was set, and what was removed.
// They are returned once.
func (c *Control) Unkept() (set map[string]json.RawMessage, removed []string) {
	return parted(c.t.memory.keep())
}

// Made are the changes of state that a tool made in a fork of the turn's memory: what was set,
// and what was removed.
func (c *Control) Made(fork *Memory) (set map[string]json.RawMessage, removed []string) {
	return parted(fork.mark())
}

func parted(changes map[string]json.RawMessage) (set map[string]json.RawMessage, removed []string) {
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		if len(changes[key]) > 0 {
			continue
		}
		removed = append(removed, key)
		delete(changes, key)
	}
	return changes, removed
}

// Redo makes changes of state again that a journal has.
func (c *Control) Redo(set map[string]json.RawMessage, removed []string) {
	changes := maps.Clone(set)
	if len(removed) > 0 && changes == nil {
		changes = map[string]json.RawMessage{}
	}
	for _, key := range removed {
		changes[key] = nil
	}
	if len(changes) > 0 {
		c.t.memory.redo(changes)
		c.t.memory.keep()
	}
}

// Lasting are all changes of state that are to be stored.
func (c *Control) Lasting() map[string]json.RawMessage { return c.t.memory.lasting() }
