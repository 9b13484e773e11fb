// Package customevent checks events of kinds that agents define (AD-37). The SDK checks them before it sends them, and the
// orchestrator checks them again, because a worker may not use the SDK.
package customevent

import (
	"encoding/json"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,63}$`)

// New returns an event with data as JSON (nil for none). It does not check the event. Mode: agent_logic for a value without a
// JSON form.
func New(name string, data any) (e event.Custom, err error) {
	e.Name = name
	if data == nil {
		return e, nil
	}
	if e.Data, err = json.Marshal(data); err != nil {
		return e, failure.Newf(failure.AgentLogic, "event.Custom", "event %q: its data cannot be JSON", name).Because(err)
	}
	return e, nil
}

// Counter counts the custom events of an attempt of a step. The zero Counter is ready for use. It is safe for concurrent
// use.
type Counter struct {
	mu            sync.Mutex
	events, bytes int
}

// Admit counts an event. It returns an error and counts nothing if the event is invalid (agent_logic), or if the attempt
// would exceed its limits (resource_quota).
func (c *Counter) Admit(e event.Custom) error {
	if err := Check(e); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	events, bytes := c.events+1, c.bytes+len(e.Name)+len(e.Data)
	switch {
	case events > event.MaxCustomEvents:
		return failure.Newf(failure.ResourceQuota, "event.Custom",
			"event %q: a step may emit at most %d events of its own; put several into one", e.Name, event.MaxCustomEvents)
	case bytes > event.MaxCustomBytes:
		return failure.Newf(failure.ResourceQuota, "event.Custom",
			"event %q: the events that a step emits may have at most %d bytes together; save the data as an artifact", e.Name, event.MaxCustomBytes)
	}
	c.events, c.bytes = events, bytes
	return nil
}

// Check returns an error with the mode agent_logic if an event is invalid.
func Check(e event.Custom) error {
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.AgentLogic, "event.Custom", format, args...)
	}
	switch {
	case !namePattern.MatchString(e.Name):
		return wrong("event %.70q: use a name of 1 to 64 of a-z, 0-9, '.', '_' and '-' that begins with a letter", e.Name)
	case len(e.Data) > event.MaxCustomData:
		return wrong("event %q: %d bytes of data are too many; use at most %d, or save an artifact and name it", e.Name, len(e.Data), event.MaxCustomData)
	case len(e.Data) > 0 && (!json.Valid(e.Data) || !utf8.Valid(e.Data)):
		return wrong("event %q: its data is not JSON in UTF-8", e.Name)
	}
	return nil
}
