package selection

import (
	"fmt"
	"strings"
)

// Availability says whether an instance can get a step and, if not, why.
type Availability uint8

// The reasons.
const (
	Available    Availability = iota // the instance can get the step
	Full                             // this orchestrator has filled all slots of the instance
	Lost                             // it lost this step before
	RejectedStep                     // it rejected the step
	Unresponsive                     // it recently did not answer
	BreakerOpen                      // its circuit breaker is open (OC-34)
	Starting                         // it is being started, or its start failed
	Paused
	Draining
	NotReady          // its state takes no steps
	Missing           // its registration vanished
	NoShare           // its version has no share of the steps
	NotNamed          // the policy names another instance and allows no other
	Unfit             // it has none of the needed capabilities
	Absent            // an agent without instances, or an unknown tool
	Quarantined       // its agent is quarantined (guarantee S18)
	availabilityCount // number of values
)

// texts returns the recorded name of a reason, and its phrases for one instance and for several.
func (a Availability) texts() (name, one, many string) {
	switch a {
	case Available:
		return "available", "is available", "are available"
	case Full:
		return "full", "is full", "are full"
	case Lost:
		return "lost", "lost it before", "lost it before"
	case RejectedStep:
		return "refused", "refused it", "refused it"
	case Unresponsive:
		return "unresponsive", "does not answer", "do not answer"
	case BreakerOpen:
		return "breaker_open", "failed its last steps", "failed their last steps"
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
		return "quarantined", "belongs to a quarantined agent", "belong to a quarantined agent"
	default:
		return "unknown", "is not available", "are not available"
	}
}

// String returns the recorded name.
func (a Availability) String() string { name, _, _ := a.texts(); return name }

// Describe returns a phrase about one instance, such as "is full".
func (a Availability) Describe() string { _, one, _ := a.texts(); return one }

// MarshalText implements encoding.TextMarshaler.
func (a Availability) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Availability) UnmarshalText(text []byte) error {
	for known := range availabilityCount {
		if known.String() == string(text) {
			*a = known
			return nil
		}
	}
	return fmt.Errorf("there is no reason %q", text)
}

// String returns the recorded name.
func (c CandidateClass) String() string {
	switch c {
	case Ready:
		return "ready"
	case Unregistered:
		return "unregistered"
	case Unstarted:
		return "unstarted"
	default:
		return "unknown"
	}
}

// MarshalText implements encoding.TextMarshaler.
func (c CandidateClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *CandidateClass) UnmarshalText(text []byte) error {
	for known := Ready; known <= Unstarted; known++ {
		if known.String() == string(text) {
			*c = known
			return nil
		}
	}
	return fmt.Errorf("there is no class %q", text)
}

// tally counts the instances by availability.
type tally [availabilityCount]int

// countRejected returns the number of instances that are not available.
func (t *tally) countRejected() (n int) {
	for _, count := range t[1:] {
		n += count
	}
	return n
}

// String summarizes the instances that are not available.
func (t *tally) String() string {
	var parts []string
	for why := Available + 1; why < availabilityCount; why++ {
		switch _, one, many := why.texts(); {
		case t[why] == 1:
			parts = append(parts, "1 "+one)
		case t[why] > 1:
			parts = append(parts, fmt.Sprintf("%d %s", t[why], many))
		}
	}
	return strings.Join(parts, ", ")
}
