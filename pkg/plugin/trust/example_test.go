package trust_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

// A client signs a request to an agent that does not know it. The agent has no judge, so the client needs an
// invite.
func ExampleGate() {
	g, err := trust.NewGate(trust.GateConfig{Agent: "librarian", Invites: []string{"a code of 16 bytes or more"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for i, code := range []string{"", "a code of 16 bytes or more", ""} {
		text := fmt.Sprintf("May I borrow book %d?", i)
		signature := trust.Sign(key, trust.Request{Agent: "librarian", Text: text, Time: time.Now()})
		visit := trust.Visit{Text: text, Signature: signature.String(), Invite: code}
		if decision, err := g.Decide(context.Background(), visit); err != nil {
			fmt.Fprintln(os.Stdout, failure.PlainMessage(err))
		} else {
			fmt.Fprintln(os.Stdout, decision.DecidedBy, "says:", decision.Reason)
		}
	}
	// Output:
	// the request is refused: the agent does not know the client; ask its operator for an invite
	// rule says: the client has an invite
	// rule says: the client is a contact
}
