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
func (t *chatSession) askCredential(p *troupev1.PendingCall) (*troupev1.CallAnswer, bool) {
	t.hold.active.Store(t.term.ReadHidden != nil)
	defer func() { t.hold.active.Store(false); t.hold.release() }()
	for asked := time.Now(); ; {
		text, ok := t.promptSince("Give it? y (you type it next, unseen), n WHY, s WHY (stop the turn), Enter (later): ", asked)
		text = strings.TrimSpace(text)
		switch {
		case !ok || text == "/quit":
			return nil, false
		case text == "":
			return nil, true
		}
		verdict, why := parseApproval(text)
		if verdict != troupev1.CallVerdict_CALL_VERDICT_APPROVE {
			t.hold.release()
			if verdict != 0 {
				return &troupev1.CallAnswer{Id: p.GetId(), Verdict: verdict, Text: strings.ToValidUTF8(why, "\uFFFD")}, true
			}
			continue
		}
		credential, ok := t.readCredential()
		if !ok || credential == "" {
			return nil, ok
		}
		a, err := client.Seal(t.Session, p, secret.New(credential))
		if err == nil {
			return a, true
		}
		t.printNote("%s", console.Escape(failure.PlainMessage(err)))
		t.hold.release()
	}
}

// readCredential reads a line without echo. It returns false if the user leaves.
func (t *chatSession) readCredential() (string, bool) {
	fmt.Fprint(t.term.Out, "The credential: ")
	defer fmt.Fprintln(t.term.Out)
	if t.term.ReadHidden == nil {
		select {
		case l, ok := <-t.lines:
			t.hold.recordLine(l)
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
		text, err := t.term.ReadHidden(ctx)
		done <- typed{text, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err == nil
	case <-t.interrupts: // the running reader takes the next line, so no other reader may start
		stop()
		<-done
		return "", false
	}
}
