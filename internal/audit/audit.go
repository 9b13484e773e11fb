// Package audit keeps the audit log of a process: rejected callers, acts of operators, takeovers, and rights
// that were given (guarantees S19).
//
// The log is an append-only file of JSON lines. Each line holds its own hash and the hash of the line before
// it, so Verify detects changed, removed, added and moved lines. It cannot detect that all lines up to the end
// were rewritten, or that lines were cut off at the end. Detecting these needs a hash that is known from
// elsewhere, so the process logs the hash of its last line every 10 minutes and when it stops.
//
// A line is in the file moments after Record. It is on disk within about a second, or when the log is closed: a
// loss of power loses that second.
package audit

import (
	"maps"
	"time"
)

// Kind is the subject of an entry.
type Kind string

// The kinds.
const (
	Denied     Kind = "denied"     // a call or an object that the caller may not use, or a worker with another identity than it claims
	Violation  Kind = "violation"  // an attempt to write state of another owner
	Admin      Kind = "admin"      // an operator changed something: pause, drain, quarantine, erase
	Lifecycle  Kind = "lifecycle"  // a worker was started, paused, resumed or shut down
	Takeover   Kind = "takeover"   // another process took a turn over
	Credential Kind = "credential" // a credential of a turn was issued
	Own        Kind = "log"        // about the log itself: begin, resume, rotate, lost entries, end
)

// Entry is one line. No field holds a secret or text of a user. Unprintable characters are replaced, and each
// text is cut after 256 characters. There are at most 16 facts.
type Entry struct {
	Kind   Kind
	Actor  string            // the authenticated caller: the text of its Principal
	Action string            // full name of a method, or a verb
	Object string            // a session, an agent, a key (empty if the action has none)
	Result string            // "ok", or the mode of the failure
	Facts  map[string]string // more about the object: tenant, trace, owner
}

// Log records entries in one file. Logs with other names may share the file. A nil *Log discards entries. It is
// safe for concurrent use.
type Log struct {
	at    string
	queue *queue
}

// Named returns the log of a part of the program: its lines carry the name.
func (l *Log) Named(name string) *Log {
	if l == nil {
		return nil
	}
	return &Log{at: name, queue: l.queue}
}

// Record adds an entry. It waits for no disk and never fails. If the disk is too slow, entries are dropped, and
// the log later holds the number of dropped entries.
func (l *Log) Record(e Entry) {
	if l == nil {
		return
	}
	e.Facts = maps.Clone(e.Facts)
	l.queue.add(queuedEntry{e, l.at, time.Now()})
}

// Close writes all recorded entries and closes the file. Later entries are lost. It may be called more than
// once.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.queue.close()
}
