package interact

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// askCredential asks the user for the credential that a call needs. It returns a nil answer if the user postpones
// the call, and false if the user leaves.
func (c *chatSession) askCredential(p *troupev1.PendingCall) (*troupev1.CallAnswer, bool) {
	c.hold.active.Store(c.term.ReadHidden != nil)
	defer func() { c.hold.active.Store(false); c.hold.release() }()
	for asked := time.Now(); ; {
		text, ok := c.promptSince("Give it? y (you type it next, unseen), n WHY, s WHY (stop the turn), Enter (later): ", asked)
		text = strings.TrimSpace(text)
		switch {
		case !ok || text == "/quit":
			return nil, false
		case text == "":
			return nil, true
		}
		verdict, why := parseApproval(text)
		if verdict != troupev1.CallVerdict_CALL_VERDICT_APPROVE {
			c.hold.release()
			if verdict != 0 {
				return &troupev1.CallAnswer{Id: p.GetId(), Verdict: verdict, Text: strings.ToValidUTF8(why, "\uFFFD")}, true
			}
			continue
		}
		credential, ok := c.readCredential()
		if !ok || credential == "" {
			return nil, ok
		}
		a, err := client.Seal(c.Session, p, secret.New(credential))
		if err == nil {
			return a, true
		}
		c.printNote("%s", console.Escape(failure.PlainMessage(err)))
		c.hold.release()
	}
}

// readCredential reads a line without echo. It returns false if the user leaves.
func (c *chatSession) readCredential() (string, bool) {
	fmt.Fprint(c.term.Out, "The credential: ")
	defer fmt.Fprintln(c.term.Out)
	if c.term.ReadHidden == nil {
		select {
		case l, ok := <-c.lines:
			c.hold.recordLine(l)
			return l.text, ok
		case <-c.interrupts:
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
		text, err := c.term.ReadHidden(ctx)
		done <- typed{text, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err == nil
	case <-c.interrupts: // the running reader takes the next line, so no other reader may start
		stop()
		<-done
		return "", false
	}
}
