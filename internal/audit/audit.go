// Package audit is the record of what somebody may have to answer for: who was refused, what
// operators did, who took over, which rights were given (guarantees S19).
//
// It is a file of JSON lines to which a process only adds. Each line has the hash of the one
// before it and its own, so that whoever changes, removes, adds or moves lines is found out by
// Verify: unless he writes the whole rest anew, or cuts lines off at the end, which shows only
// against a hash that is known from elsewhere. So the process logs the hash of its last line
// now and then, and when it stops.
//
// A line is in the file moments after Record, and on the disk within about a second, or when
// the log is closed: a machine that loses its power loses that second.
package audit

import (
	"maps"
	"time"
)

// Kind is what an entry is about.
type Kind string

// The kinds.
const (
	Denied     Kind = "denied"     // a call that its caller may not make, an object that is not his, a worker that is not who it says
	Violation  Kind = "violation"  // a write to state of another owner
	Admin      Kind = "admin"      // an operator changed something: pause, drain, quarantine, erase
	Lifecycle  Kind = "lifecycle"  // a worker was started, paused, resumed or shut down
	Takeover   Kind = "takeover"   // another process goes on with a turn
	Credential Kind = "credential" // the right to act in a turn was given
	Own        Kind = "log"        // of the log itself: it begins, resumes, rotates, lost entries, ends
)

// Entry is one line. No field holds a secret, nor what a user said. Of each, what is no
// printable text is replaced, and what is longer than 256 characters is cut off; of facts there
// are 16 at most.
type Entry struct {
	Kind   Kind
	Actor  string            // who, as proven: a Principal's text
	Action string            // what: a method's full name, or a verb
	Object string            // on what: a session, an agent, a key; empty when the action says it all
	Result string            // "ok", or the mode of the failure
	Facts  map[string]string // more that identifies it: tenant, trace, owner
}

// Log takes entries for one file. Logs with other names may share it. A nil *Log takes them
// and keeps none. Safe for concurrent use.
type Log struct {
	at    string
	queue *queue
}

// Named returns the same log for a part of the program: its lines carry the name.
func (l *Log) Named(name string) *Log {
	if l == nil {
		return nil
	}
	return &Log{at: name, queue: l.queue}
}

// Record adds an entry. It does not wait for a disk, and never fails its caller: when more
// come than the disk takes, some are left out, and the log says how many.
func (l *Log) Record(e Entry) {
	if l == nil {
		return
	}
	e.Facts = maps.Clone(e.Facts)
	l.queue.add(recorded{e, l.at, time.Now()})
}

// Close writes what was recorded before it, and ends the file. What is recorded later is
// lost. It may be called again.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.queue.close()
}
