// Package audit writes the audit log of a process. It records rejected callers, actions of operators, takeovers,
// and issued credentials (guarantee S19).
//
// The log is an append-only file of JSON lines. Each line contains its own hash and the hash of the line before
// it, so Verify detects changed, removed, added and moved lines. Verify alone cannot detect that the end of the
// file was rewritten or cut off. To make that detectable, the process logs the hash of its last line every 10
// minutes and when it stops.
//
// A line is in the file moments after Record. It is on disk within about a second, or when the log is closed. A
// power failure loses at most that second.
package audit

import (
	"maps"
	"time"
)

// Kind says what an entry is about.
type Kind string

// The kinds.
const (
	Denied     Kind = "denied"     // a rejected call, or a worker whose identity differs from the one that it claims
	Violation  Kind = "violation"  // an attempt to write state of another owner
	Admin      Kind = "admin"      // an operator changed something: pause, drain, quarantine, erase
	Lifecycle  Kind = "lifecycle"  // a worker was started, paused, resumed or shut down
	Takeover   Kind = "takeover"   // another process took a turn over
	Credential Kind = "credential" // a credential of a turn was issued
	LogItself  Kind = "log"        // an entry about the log itself: begin, resume, rotate, lost entries, end
)

// Entry is one line of the audit log. It contains no secret and no text of a user. Unprintable characters are
// replaced, and each text is cut after 256 characters. At most 16 facts are kept.
type Entry struct {
	Kind   Kind
	Actor  string            // the authenticated caller: the text of its Principal
	Action string            // full name of a method, or a verb
	Object string            // a session, an agent, a key (empty if the action has none)
	Result string            // "ok", or the mode of the failure
	Facts  map[string]string // more about the object: tenant, trace, owner
}

// Log records entries in one file. Several Logs, each with the name of a component, may share the file. A nil *Log
// discards entries. Log is safe for concurrent use.
type Log struct {
	component string
	queue     *queue
}

// Named returns a Log that writes to the same file. Its lines contain name as their component.
func (l *Log) Named(name string) *Log {
	if l == nil {
		return nil
	}
	return &Log{component: name, queue: l.queue}
}

// Record adds an entry. It never waits for the disk and never fails. If the disk is too slow, entries are dropped,
// and a later line of the log contains the number of dropped entries.
func (l *Log) Record(e Entry) {
	if l == nil {
		return
	}
	e.Facts = maps.Clone(e.Facts)
	l.queue.enqueue(queuedEntry{e, l.component, time.Now()})
}

// Close writes all recorded entries and closes the file. Entries recorded after Close are lost. Close may be
// called more than once.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.queue.close()
}
