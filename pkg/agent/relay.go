package agent

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/event"
)

// relay hands on an event that the agent's function yielded, and notes what it says of the
// answer. What other agents did is counted by their result, which is not told a second time.
func (t *turn) relay(e event.Event) error {
	own := e.Author == "" || e.Author == t.agent.Name()
	if own {
		t.tally.note(e)
	}
	switch p := e.Payload.(type) {
	case event.UserInput:
		return nil
	case event.TurnResult:
		t.take(p, own)
		return nil
	case event.TextDelta:
		if len(t.inv.Step.Routes) > 0 {
			return nil // the name of a route is no part of the answer
		}
	case event.Answer:
		t.text, t.reason, t.judged, t.pending = p.Text, p.Reason, nil, p.Pending
		t.tasks = p.Tasks
	case event.Message:
		if p.Text != "" {
			t.text = p.Text
		}
		if own && p.Escalate {
			t.control.Turn().Escalate()
		}
		if own {
			if err := t.change(p.State); err != nil {
				return err
			}
		}
	}
	return t.control.Events.Forward(e)
}

// take adds up what an agent led to that the function ran. One of the function itself is the
// sum of what it told before.
func (t *turn) take(done event.TurnResult, own bool) {
	if own {
		t.tally = tally{}
	}
	t.control.Conversation.MarkRead(done.Result.Untrusted)
	t.tally.add(done.Result)
	if done.Reason == event.Failed || done.Reason == event.Interrupted {
		return
	}
	if done.Result.Text != "" {
		t.text = done.Result.Text
	}
	if done.Result.NextAgent != "" {
		t.text = done.Result.NextAgent
	}
	t.reason, t.pending, t.tasks = done.Reason, done.Result.Pending, done.Result.Tasks
	switch {
	case done.Result.InputRequired:
		t.reason = event.InputRequired
	case done.Ended:
		t.reason = event.Natural
	}
	t.judged = done.Result.Confidence
	if done.Escalate {
		t.control.Turn().Escalate()
	}
}

// change takes over what a function changes of state by its events (AD-18), which are told
// already.
func (t *turn) change(state map[string]json.RawMessage) error {
	m := t.control.Turn().Memory()
	told := m.Fork(t.agent.Name())
	for key, value := range state {
		err := told.Delete(key)
		if err == nil && len(value) > 0 {
			err = told.Set(key, value)
		}
		if err != nil {
			return err
		}
	}
	m.Join(told)
	return nil
}
