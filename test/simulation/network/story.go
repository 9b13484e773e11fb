package network

import (
	"fmt"
	"strings"
	"time"
)

// Entry is one line of the story of a run.
type Entry struct {
	At       time.Duration
	From, To string
	What     string // the message, or what happened
	Detail   string
}

// String returns the entry as a line for a person: time, process, message, fault.
func (e Entry) String() string {
	line := fmt.Sprintf("%9.3fs  %-16s", e.At.Seconds(), e.From)
	if e.To != "" {
		line += " → " + fmt.Sprintf("%-14s", e.To)
	} else {
		line += strings.Repeat(" ", 17)
	}
	line += " " + e.What
	if e.Detail != "" {
		line += ": " + e.Detail
	}
	return line
}

// Story returns the lines of the run so far.
func (n *Network) Story() []Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Entry(nil), n.story...)
}

// Tell adds a line to the story.
func (n *Network) Tell(process, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell(process, "", what, "")
}

// tell adds a line. The caller holds the lock.
func (n *Network) tell(from, to, what, detail string) {
	n.story = append(n.story, Entry{n.Now(), from, to, what, detail})
}

// record adds a message, unless it is one of the many that keep the mesh alive.
func (n *Network) record(m message, arrow, detail string) {
	switch m.method {
	case "Check", "Watch", "Heartbeat", "GetState", "renew lease", "RenewTurn", "Ping", "registry update", "UnfinishedErasures":
		if detail == "" {
			return
		}
	}
	what := strings.TrimSpace(m.method + " " + m.key)
	n.mu.Lock()
	defer n.mu.Unlock()
	if arrow == "←" {
		n.tell(m.from.id, m.to, what+" fails", detail)
		return
	}
	n.tell(m.from.id, m.to, what, detail)
}

// note adds what a fault did to a message.
func (n *Network) note(m message, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell(m.from.id, m.to, strings.TrimSpace(m.method+" "+m.key), "FAULT "+what)
}
