package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// stream are the events of a turn.
type stream = iter.Seq2[*troupev1.Event, error]

// talk is a conversation that goes on. One goroutine at a time uses it.
type talk struct {
	chat
	term       terminal
	mesh       *client.Client
	sign       *troupev1.Auth
	lines      <-chan line
	hush       *hush
	interrupts <-chan os.Signal
	warned     bool // the next Ctrl-C leaves
	ended      bool // the process was asked to end

	begun  bool                         // the mesh knows the session
	unseen func(context.Context) stream // a turn whose end was not shown; nil: there is none
	seen   uint64                       // its last event that was
	waits  []*troupev1.PendingCall
	later  []string // ids of those that shall go on waiting, as they were when that was said
}

// line is one that was typed.
type line struct {
	text string
	at   time.Time
	held bool // nothing behind it is read, until the hush is over
}

// listen reads lines until the input or ctx ends. It reads ahead, so that it is known of each
// line when it was typed, but not behind a line that was typed under a hush. Nobody waits for
// it: a read of a terminal cannot be called off.
func listen(ctx context.Context, r io.Reader, h *hush) <-chan line {
	const ahead = 1024
	lines := make(chan line, ahead)
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			text, err := in.ReadString('\n')
			if text != "" {
				at := time.Now()
				held := h.on.Load()
				select {
				case lines <- line{trimEnd(text), at, held}:
				case <-ctx.Done():
					return
				}
				if held && !h.wait(ctx) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// read asks for a line. It reports false when there will be none, or the user leaves.
func (t *talk) read(prompt string) (string, bool) { return t.readSince(prompt, time.Time{}) }

// readSince is read for a question: a line that was typed before a person could see what it
// is about does not answer it.
func (t *talk) readSince(prompt string, asked time.Time) (string, bool) {
	prompt = t.term.paint(bold, prompt)
	for !t.ended {
		fmt.Fprint(t.term.out, prompt)
		select {
		case l, ok := <-t.lines:
			t.hush.came(l)
			switch {
			case !ok:
				fmt.Fprintln(t.term.out)
				return "", false
			case t.term.live && l.at.Before(asked):
				t.hush.goOn()
				t.note("Not taken as an answer, for it was typed before: %s", brief(l.text, 60))
				continue
			case !t.term.live:
				fmt.Fprintln(t.term.out, oneLine(l.text)) // a terminal has shown it already
			}
			t.warned = false
			return l.text, true
		case by := <-t.interrupts:
			fmt.Fprintln(t.term.out)
			if by != os.Interrupt || t.warned {
				return "", false
			}
			t.warned = true
			t.note("Ctrl-C once more leaves.")
		}
	}
	return "", false
}

// follow shows the rest of a turn. What goes wrong with it is told, and ends nothing else.
func (t *talk) follow(ctx context.Context) {
	waiting, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var by os.Signal // what ended the wait; nil: nothing did
	watching.Go(func() {
		select {
		case by = <-t.interrupts:
			stop()
		case <-waiting.Done():
		}
	})
	err := t.show(t.unseen(waiting))
	stop()
	watching.Wait()
	switch {
	case err == nil:
		t.unseen, t.seen = nil, 0
	case by != nil && t.seen > 0:
		t.note("The turn goes on without you. Enter shows the rest; what you type waits for its end. Ctrl-C once more leaves.")
	case by != nil:
		t.note("Nothing of the turn was seen, so it may not have begun. Enter sends it again. Ctrl-C once more leaves.")
	default:
		t.failed(err)
		if t.seen == 0 && !uncertain(err) {
			t.unseen = nil // it was refused
		} else {
			t.note("The turn may go on all the same; Enter looks for it.")
		}
	}
	t.warned, t.ended = by != nil, by != nil && by != os.Interrupt
}
