package interact

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// A credential that the user types or pipes reaches the tool sealed. It is never a command line argument.
// Req: LP-37
func TestAnswer_SealsACredential(t *testing.T) {
	d := newMesh(t)
	for _, from := range []string{"pipe", "dash", "terminal"} {
		d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", from, "fetch")
		call := d.Sessions[from].GetPending()[0].GetId()
		args := []string{"answer", from, call}
		var out, err bytes.Buffer
		term := console.Terminal{In: strings.NewReader("hunter2\n"), Out: &out, Err: &err}
		if from == "dash" {
			args = append(args, "-")
		}
		if from == "terminal" {
			term.In = strings.NewReader("")
			term.ReadHidden = func(context.Context) (string, error) { return "hunter2", nil }
		}
		require.Zero(t, run(t.Context(), args, term), "%s%s", &out, &err)
		require.Contains(t, out.String(), `"hunter2" <nil>`, "the desk could open it")
		req, answers := d.LastRequest()
		require.NotContains(t, req.String(), "hunter2")
		require.NotContains(t, string(answers[0].GetSealed()), "hunter2")
		if from == "terminal" {
			require.Contains(t, err.String(), "The credential (it is not shown): ")
		}
	}
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s4", "fetch")
	for says, args := range map[string][]string{
		"is no argument":        {"hunter2"},
		"--failed":              {"--failed"},
		"credential: want 1 to": {"-"},
	} {
		_, err := d.RunCommand(t, 2, "", append([]string{"answer", "s4", "1-1-2"}, args...)...)
		require.Contains(t, err, says)
		require.NotContains(t, err, "hunter2")
	}
}

func TestChat_AsksForACredential(t *testing.T) {
	d := newMesh(t)
	out := runChat(t, d, []string{"fetch", "perhaps", "y", "hunter2", "fetch", "", "/pending", "n not mine"}, "--session", "s1")
	require.Contains(t, out, `"hunter2" <nil>`)
	require.Equal(t, 1, strings.Count(out, "hunter2"), "only the desk tells it, which opened it")
	require.Contains(t, out, "It waits. /pending asks again")
	require.Contains(t, out, "deny: not mine")
}

// On a terminal the chat reads a credential without echo and in no other way.
func TestChat_ReadsCredentialWithoutEcho(t *testing.T) {
	d := newMesh(t)
	s := startChat(t, d)
	s.expect("> ")
	for range 2 {
		s.typeLine("fetch")
		s.expect("Enter (later): ")
		s.typeLine("perhaps")
		s.expect("Enter (later): ")
		s.typeLine("y")
		s.expect("The credential: ")
		s.typeLine("hunter2")
		s.expect(`"hunter2" <nil>`)
		s.typeLine("hello")
		s.expect("You said hello.")
	}
	s.typeLine("fetch")
	s.expect("Enter (later): ")
	s.typeLine("n no")
	s.expect("deny: no")
	s.typeLine("hello")
	s.expect("You said hello.")
}
