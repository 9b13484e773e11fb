package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// unseen reads a line of a terminal that does not show it. When ctx ends the terminal is as it
// was; the read goes on, for it cannot be called off.
func unseen(ctx context.Context, fd int) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type typed struct {
		text []byte
		err  error
	}
	done := make(chan typed, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		done <- typed{text, err}
	}()
	select {
	case got := <-done:
		return string(got.text), got.err
	case <-ctx.Done():
		return "", cmp.Or(term.Restore(fd, before), ctx.Err())
	}
}

// hush keeps who reads lines from reading what comes behind one: it is a credential, which only
// unseen may read.
type hush struct {
	on   atomic.Bool
	over chan struct{}
	held bool // a line came behind which nothing is read
}

func newHush() *hush { return &hush{over: make(chan struct{}, 1)} }

// wait returns when lines may be read again; false when there will be none.
func (h *hush) wait(ctx context.Context) bool {
	select {
	case <-h.over:
		return true
	case <-ctx.Done():
		return false
	}
}

// came notes a line that was read. Without a hush the next one may be read at once.
func (h *hush) came(l line) {
	h.held = h.held || l.held
	if !h.on.Load() {
		h.goOn()
	}
}

// goOn lets the next line be read.
func (h *hush) goOn() {
	if h.held {
		h.held = false
		h.over <- struct{}{}
	}
}

// login asks for the credential that a call lacks. Nil: the call shall go on waiting. It reports
// false when the user leaves.
func (t *talk) login(p *troupev1.PendingCall) (*troupev1.CallAnswer, bool) {
	t.hush.on.Store(t.term.unseen != nil)
	defer func() { t.hush.on.Store(false); t.hush.goOn() }()
	for asked := time.Now(); ; {
		text, ok := t.readSince("Give it? y (you type it next, unseen), n WHY, s WHY (stop the turn), Enter (later): ", asked)
		text = strings.TrimSpace(text)
		switch {
		case !ok || text == "/quit":
			return nil, false
		case text == "":
			return nil, true
		}
		verdict, why := allowed(text)
		if verdict != troupev1.CallVerdict_CALL_VERDICT_APPROVE {
			t.hush.goOn()
			if verdict != 0 {
				return &troupev1.CallAnswer{Id: p.GetId(), Verdict: verdict, Text: strings.ToValidUTF8(why, "\uFFFD")}, true
			}
			continue
		}
		credential, ok := t.secret()
		if !ok || credential == "" {
			return nil, ok
		}
		a, err := client.Seal(t.Session, p, secret.New(credential))
		if err == nil {
			return a, true
		}
		t.note("%s", visible(failure.Plain(err)))
		t.hush.goOn()
	}
}

// secret reads a line that is not shown. It reports false when the user leaves.
func (t *talk) secret() (string, bool) {
	fmt.Fprint(t.term.out, "The credential: ")
	defer fmt.Fprintln(t.term.out)
	if t.term.unseen == nil {
		select {
		case l, ok := <-t.lines:
			t.hush.came(l)
			return l.text, ok
		case <-t.interrupts:
			return "", false
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type typed struct {
		text string
		err  error
	}
	done := make(chan typed, 1)
	go func() {
		text, err := t.term.unseen(ctx)
		done <- typed{text, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err == nil
	case <-t.interrupts: // who reads has the line that comes, so nobody else can
		stop()
		<-done
		return "", false
	}
}
