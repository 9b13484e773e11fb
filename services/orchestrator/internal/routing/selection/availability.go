package selection

import (
	"fmt"
	"strings"
)

// Availability is why an instance does not get a step.
type Availability uint8

// The reasons.
const (
	Available    Availability = iota // none: it could have it
	Full                             // this orchestrator has as many steps there as it takes
	Lost                             // it lost this step before
	Refused                          // it was asked, and did not take it
	Unresponsive                     // it did not answer lately
	BreakerOpen                      // it failed the last steps that it had (OC-34)
	Starting                         // it is being started, or could not be
	Paused
	Draining
	NotReady       // its state says so
	Missing        // its registration is gone
	NoShare        // its version gets no steps
	NotNamed       // another one is named, and nobody may stand in
	Unfit          // has nothing of what the step needs
	Absent         // there is none: no instance of an agent, no tool of that name
	Quarantined    // its agent is quarantined (S18)
	availabilities // how many there are
)

// texts are how each reason is written, and said of one and of many.
func (w Availability) texts() (name, one, many string) {
	switch w {
	case Available:
		return "available", "is available", "are available"
	case Full:
		return "full", "is full", "are full"
	case Lost:
		return "lost", "lost it before", "lost it before"
	case Refused:
		return "refused", "refused it", "refused it"
	case Unresponsive:
		return "silent", "does not answer", "do not answer"
	case BreakerOpen:
		return "broken", "failed its last steps", "failed their last steps"
	case Starting:
		return "starting", "is not started", "are not started"
	case Paused:
		return "paused", "is paused", "are paused"
	case Draining:
		return "draining", "drains", "drain"
	case NotReady:
		return "not_ready", "is not ready", "are not ready"
	case Missing:
		return "missing", "is missing from the registry", "are missing from the registry"
	case NoShare:
		return "no_share", "has a version that gets no steps", "have a version that gets no steps"
	case NotNamed:
		return "not_named", "is not the one that is named", "are not the one that is named"
	case Unfit:
		return "unfit", "has nothing of what the step needs", "have nothing of what the step needs"
	case Absent:
		return "absent", "is not there", "are not there"
	case Quarantined:
		return "quarantined", "is of a quarantined agent", "are of a quarantined agent"
	default:
		return "unknown", "is out", "are out"
	}
}

// String is the name, as it is recorded.
func (w Availability) String() string { name, _, _ := w.texts(); return name }

// Describe is what is said of one instance.
func (w Availability) Describe() string { _, one, _ := w.texts(); return one }

// MarshalText writes the name.
func (w Availability) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads a name.
func (w *Availability) UnmarshalText(text []byte) error {
	for known := range availabilities {
		if known.String() == string(text) {
			*w = known
			return nil
		}
	}
	return fmt.Errorf("there is no reason %q", text)
}

// String is the name, as it is recorded.
func (c Class) String() string {
	switch c {
	case Ready:
		return "ready"
	case Doubtful:
		return "doubtful"
	case Unstarted:
		return "unstarted"
	default:
		return "unknown"
	}
}

// MarshalText writes the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a name.
func (c *Class) UnmarshalText(text []byte) error {
	for known := Ready; known <= Unstarted; known++ {
		if known.String() == string(text) {
			*c = known
			return nil
		}
	}
	return fmt.Errorf("there is no class %q", text)
}

// tally is how many instances there are, by why they do not get the step.
type tally [availabilities]int

// total counts all but those that are available.
func (t *tally) rejected() (n int) {
	for _, count := range t[1:] {
		n += count
	}
	return n
}

// String is what is said of those that are not available.
func (t *tally) String() string {
	var parts []string
	for why := Available + 1; why < availabilities; why++ {
		switch _, one, many := why.texts(); {
		case t[why] == 1:
			parts = append(parts, "1 "+one)
		case t[why] > 1:
			parts = append(parts, fmt.Sprintf("%d %s", t[why], many))
		}
	}
	return strings.Join(parts, ", ")
}
