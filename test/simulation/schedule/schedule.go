// Package schedule holds what decides a simulated run: a seed and a list of faults. The seed decides how long each
// message takes and what the clients do. The faults say what goes wrong, and when.
package schedule

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. A fault of a message hits the first message that matches it after its time.
const (
	CrashAtRequest Kind = "crash at request" // the process crashes when it is about to send or to handle a request
	CrashAtReply   Kind = "crash at reply"   // the process crashes when a reply is about to leave or to reach it
	LoseRequest    Kind = "lose request"
	LoseReply      Kind = "lose reply"
	Duplicate      Kind = "duplicate" // the request arrives twice
	Delay          Kind = "delay"     // the request takes longer than usual
	Cut            Kind = "cut"       // the stream ends between two messages
	Freeze         Kind = "freeze"    // the process neither sends nor receives for a while
	Partition      Kind = "partition" // the process and its peer do not reach each other for a while
	Silence        Kind = "silence"   // as a partition, but calls hang instead of failing
	Outage         Kind = "outage"    // the store or the registry is away for a while
	Clock          Kind = "clock"     // the clock of a store jumps
	Rollback       Kind = "rollback"  // the store loses its last acknowledged writes
)

// Fault is one thing that goes wrong.
type Fault struct {
	At      time.Duration `json:"at"` // since the start of the run
	Kind    Kind          `json:"kind"`
	Process string        `json:"process,omitempty"` // the process that it hits, or the sender of the message
	Peer    string        `json:"peer,omitempty"`    // the other side of the link (empty means any)
	Method  string        `json:"method,omitempty"`  // the message that it hits (empty means any)
	For     time.Duration `json:"for,omitempty"`     // how long it lasts, or how far the clock jumps
	Writes  int           `json:"writes,omitempty"`  // how many writes a rollback loses
}

// String returns the fault as a line for a person.
func (f Fault) String() string {
	text := fmt.Sprintf("%s from %s", f.Kind, f.At.Round(time.Millisecond))
	if f.Process != "" {
		text += " of " + f.Process
	}
	if f.Peer != "" {
		text += " with " + f.Peer
	}
	if f.Method != "" {
		text += " at " + f.Method
	}
	if f.For != 0 {
		text += " for " + f.For.Round(time.Millisecond).String()
	}
	if f.Writes > 0 {
		text += fmt.Sprintf(" of %d writes", f.Writes)
	}
	return text
}

// Schedule decides a run.
type Schedule struct {
	Seed       uint64        `json:"seed"`
	Clients    int           `json:"clients"`    // callers of the mesh, each with its own sessions
	Contenders int           `json:"contenders"` // callers of the memory service that compete for turns
	Guests     int           `json:"guests"`     // callers that cancel, approve, fork, resume and watch
	Time       time.Duration `json:"time"`       // how long the clients begin new requests; no fault begins afterwards
	Faults     []Fault       `json:"faults"`
}

// Encode returns the schedule as a record from which the run can be repeated.
func (s Schedule) Encode() []byte {
	text, _ := json.MarshalIndent(s, "", " ") // plain fields
	return text
}

// Decode reads a record.
func Decode(text []byte) (s Schedule, err error) {
	if err = json.Unmarshal(text, &s); err != nil {
		err = fmt.Errorf("a record of a simulated run: %w", err)
	}
	return s, err
}

// Shrink returns the smallest schedule that it finds for which fails still holds. It leaves out one thing after the
// other: faults, clients, time.
func (s Schedule) Shrink(fails func(Schedule) bool) Schedule {
	for smaller := true; smaller; {
		smaller = false
		for _, candidate := range s.smaller() {
			if fails(candidate) {
				s, smaller = candidate, true
				break
			}
		}
	}
	return s
}

// smaller returns schedules that have a little less than this one, the smallest first.
func (s Schedule) smaller() (all []Schedule) {
	add := func(change func(*Schedule)) {
		c := s
		c.Faults = slices.Clone(s.Faults)
		change(&c)
		all = append(all, c)
	}
	if n := len(s.Faults); n > 3 {
		add(func(c *Schedule) { c.Faults = c.Faults[n/2:] })
		add(func(c *Schedule) { c.Faults = c.Faults[:n/2] })
	}
	if s.Contenders > 0 {
		add(func(c *Schedule) { c.Contenders-- })
	}
	if s.Guests > 0 {
		add(func(c *Schedule) { c.Guests-- })
	}
	if s.Clients > 0 {
		add(func(c *Schedule) { c.Clients-- })
	}
	for i := range s.Faults {
		add(func(c *Schedule) { c.Faults = slices.Delete(c.Faults, i, i+1) })
	}
	if s.Time > time.Second {
		add(func(c *Schedule) { c.Time = (s.Time / 2).Round(time.Millisecond) })
		add(func(c *Schedule) { c.Time = (s.Time * 3 / 4).Round(time.Millisecond) })
	}
	return all
}
