package interact

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// runChat runs a chat with the given lines as input and returns its output.
func runChat(t *testing.T, d *clitest.Mesh, lines []string, flags ...string) string {
	t.Helper()
	out, said := d.RunCommand(t, process.ExitOK, strings.Join(lines, "\n"), append([]string{"chat"}, flags...)...)
	require.Empty(t, said)
	return out
}

func TestChat_PrintsConversation(t *testing.T) {
	d := newMesh(t)
	out := runChat(t, d, []string{"hello", "", "what?", "/nonsense", "  /tmp is full", "/session"}, "--session", "s1", "--agent", "clerk",
		"--user", "alice", "--actor", "a b")
	again := "troupe chat --session s1 --target clerk --user alice --actor 'a b'\n"
	require.Equal(t, `Session s1 (new). You talk with clerk; /help lists what you can do.
> hello
  tool look {"at":"it"} → success after 2ms: seen\x1b[2J
clerk:
  │ You said hello.\x1b]0;x\a

by clerk, 0 model calls, 1ms
> 
> what?

What do you mean?

by clerk, 0 model calls, 1ms
> /nonsense
There is no /nonsense; /help lists what there is.
>   /tmp is full
  tool look {"at":"it"} → success after 2ms: seen\x1b[2J
clerk:
  │ You said   /tmp is full.\x1b]0;x\a

by clerk, 0 model calls, 1ms
> /session
Session s1. Continue it with: `+again+`> 
Continue with: `+again, out)
	req, _ := d.LastRequest()
	require.Equal(t, "clerk", req.GetTarget())
	require.Equal(t, "a b", req.GetAuth().GetActor())

	// A chat that resumes a session continues it as the same user.
	out = runChat(t, d, []string{"again", "/quit", "never"}, "--session", "s1")
	require.Contains(t, out, "Session s1 (ready, 3 turns). You talk with the default workflow; ")
	require.Contains(t, out, "\n> Good morning\\x1b[2J\nclerk: And to you.\n> again\n")
	require.Contains(t, out, "You said again.")
	require.NotContains(t, out, "never")
	require.Contains(t, out, "--user alice")
	_, said := d.RunCommand(t, process.ExitError, "", "chat", "--session", "s1", "--user", "bob")
	require.Equal(t, "troupe: there is no session s1 of user bob; leave --session out to begin one\n", said)
}

func TestChat_ContinuesAfterErrors(t *testing.T) {
	d := newMesh(t)
	out := runChat(t, d, []string{"fail", "reject", "/new", "hello", "/quit"}, "--session", "s1")
	require.Contains(t, out, "Failed: the printer burns\n> reject\nFailed: the session is full; begin a new one\n> /new\n")
	require.Regexp(t, `Previous session: troupe chat --session s1\nSession [0-9a-f-]{36} \(new\)`, out)
	require.Regexp(t, `Continue with: troupe chat --session [0-9a-f-]{36}\n$`, out)
	require.NotContains(t, runChat(t, d, []string{"/help"}), "Continue with", "nothing was said")
}

// Req: AD-32, LP-16
func TestChat_AsksAboutPendingCalls(t *testing.T) {
	d := newMesh(t)
	out := runChat(t, d, []string{"mail", "maybe", "y but quickly", "Yes"}, "--session", "s1")
	require.Equal(t, 3, strings.Count(out, "Allow it? y, n WHY, s WHY (stop the turn), Enter (later): "), "a yes with a condition is none")
	require.Contains(t, out, "\n  call       1-1-2  send_mail waits for an approval\n")
	require.Contains(t, out, "\nHeard 1-1-2: approve\n")
	require.Empty(t, cmp.Diff(map[string]string{"1-1-2": "APPROVE "}, d.Verdicts()))
	req, _ := d.LastRequest()
	require.Empty(t, req.GetTarget())

	runChat(t, d, []string{"mail", "n,  Bob has left "}, "--session", "s1", "--target", "clerk")
	require.Empty(t, cmp.Diff(map[string]string{"3-1-2": "DENY Bob has left"}, d.Verdicts()))
	req, _ = d.LastRequest()
	require.Empty(t, req.GetTarget(), "answers go to who waits for them")

	for line, want := range map[string]string{"42": "SUCCEED 42", "/fail no\tidea": "FAIL no\tidea", "/fail": "FAIL "} {
		d := newMesh(t)
		runChat(t, d, []string{"number", "/failed", line}, "--session", "s1")
		require.Empty(t, cmp.Diff(map[string]string{"1-1-2": want}, d.Verdicts()))
	}
}

func TestChat_AsksAgainAboutPostponedCalls(t *testing.T) {
	d := newMesh(t)
	out := runChat(t, d, []string{"mails", "n", "", "7", "/pending", "y"}, "--session", "s1")
	require.Contains(t, out, "/pending asks again")
	require.Empty(t, cmp.Diff(map[string]string{"2-1-3": "APPROVE "}, d.Verdicts()), "what was left was asked about again")
	require.Contains(t, out, "\n> /pending\n", "a call put off is not asked about in the next turn, where it has another id")
	require.Equal(t, 1, strings.Count(out, "call       1-1-3"))
	require.Equal(t, 1, strings.Count(out, "call       2-1-3"), "and not before it was wished")

	// After a decision to stop the turn, the chat does not ask about its other calls.
	out = runChat(t, d, []string{"mails", "y", "s enough", "/pending"}, "--session", "s1")
	require.Empty(t, cmp.Diff(map[string]string{"4-1-2": "APPROVE ", "4-1-3": "STOP enough"}, d.Verdicts()))
	require.Contains(t, out, "Stopped.")
	require.Contains(t, out, "Nothing waits.")

	// A chat that resumes the session asks about the calls that were pending when the user left.
	runChat(t, d, []string{"mail", "/quit"}, "--session", "s1")
	runChat(t, d, []string{"y"}, "--session", "s1")
	require.Empty(t, cmp.Diff(map[string]string{"6-1-2": "APPROVE "}, d.Verdicts()))

	out = runChat(t, d, []string{"mail", "", "hello"}, "--session", "s1")
	require.Contains(t, out, "> hello\nA message leaves what waits undone.\n")
}

// Req: AD-32
func TestChat_SendsDecisionsWhenUserLeaves(t *testing.T) {
	for name, last := range map[string][]string{"/quit": {"/quit", "never"}, "the end of the input": nil} {
		t.Run(name, func(t *testing.T) {
			d := newMesh(t)
			out := runChat(t, d, append([]string{"mails", "y"}, last...), "--session", "s1")
			require.Empty(t, cmp.Diff(map[string]string{"1-1-2": "APPROVE "}, d.Verdicts()))
			require.Contains(t, out, "Your decisions are sent; the other calls still wait.\n")
			require.Equal(t, 2, strings.Count(out, "A call waits."), "what came of it is shown")
			require.NotContains(t, out, "call       2-1-3", "who leaves is asked nothing more")
			require.True(t, strings.HasSuffix(out, "\nContinue with: troupe chat --session s1\n"), out)

			runChat(t, d, []string{"n", "7"}, "--session", "s1")
			require.Empty(t, cmp.Diff(map[string]string{"2-1-3": "DENY ", "2-1-4": "SUCCEED 7"}, d.Verdicts()), "the rest waited on")
		})
	}
}

// chatUser is a user who types into a chat and reads its screen.
type chatUser struct {
	t          *testing.T
	input      *io.PipeWriter
	screen     *bufio.Reader
	interrupts chan os.Signal
	done       chan struct{}
}

func startChat(t *testing.T, d *clitest.Mesh) *chatUser {
	t.Helper()
	c, conn, err := remote.Server{Addr: d.Addr}.Dial()
	require.NoError(t, err)
	in, keys := io.Pipe()
	screen, out := io.Pipe()
	s := &chatUser{t: t, input: keys, screen: bufio.NewReader(screen), interrupts: make(chan os.Signal, 1), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	talk := &chatSession{
		chatCommand: chatCommand{Server: remote.Server{Addr: d.Addr}, Session: "s1"}, mesh: c, interrupts: s.interrupts, hold: newInputHold(),
		term: console.Terminal{Out: out, Err: out, Color: true, Interactive: true, ReadHidden: func(context.Context) (string, error) {
			var typed []byte
			for one := []byte{0}; ; typed = append(typed, one[0]) {
				if _, err := in.Read(one); err != nil || one[0] == '\n' {
					return string(typed), err
				}
			}
		}},
	}
	talk.lines = readLines(ctx, in, talk.hold)
	go func() {
		defer close(s.done)
		if err := talk.run(ctx); err != nil {
			t.Error(err)
		}
		_ = out.Close()
	}()
	t.Cleanup(func() {
		_ = keys.Close()
		stop()
		_, _ = io.Copy(io.Discard, screen)
		<-s.done
		_ = conn.Close()
	})
	return s
}

func (c *chatUser) typeLine(text string) {
	_, err := io.WriteString(c.input, text+"\n")
	require.NoError(c.t, err)
}

// expect reads the screen until the text appears.
func (c *chatUser) expect(text string) {
	c.t.Helper()
	var read strings.Builder
	for !strings.HasSuffix(read.String(), text) {
		r, _, err := c.screen.ReadRune()
		require.NoError(c.t, err, "want %q behind %q", text, read.String())
		read.WriteRune(r)
	}
}

func TestChat_StopsWaitingAtCtrlC(t *testing.T) {
	d := newMesh(t)
	s := startChat(t, d)
	s.expect("> ")
	s.typeLine("slow")
	s.expect("You said slow.")
	s.interrupts <- os.Interrupt
	s.expect("The turn continues without you. Press Enter to see the rest")
	s.expect("> ")
	close(d.EndSlowTurn)
	s.typeLine("")
	s.expect("by clerk")
	d.Mu.Lock()
	require.Len(t, d.Turns, 1, "Enter looks for the turn, and begins none")
	d.Mu.Unlock()
	s.typeLine("")
	s.typeLine("hello")
	s.expect("You said hello.")
	s.expect("> ")

	// Two interrupts in a row leave the chat. A line between them resets the count.
	s.interrupts <- os.Interrupt
	s.expect("Press Ctrl-C again to leave.")
	s.typeLine("/session")
	s.expect("> ")
	s.expect("> ")
	s.interrupts <- os.Interrupt
	s.expect("Press Ctrl-C again to leave.")
	s.interrupts <- os.Interrupt
	s.expect("Continue with: troupe chat --addr " + d.Addr + " --session s1")
	<-s.done
}

func TestChat_EndsOnSIGTERM(t *testing.T) {
	d := newMesh(t)
	s := startChat(t, d)
	s.expect("> ")
	s.typeLine("slow")
	s.expect("You said slow.")
	s.interrupts <- syscall.SIGTERM
	s.expect("Continue with: ")
}

// A line that the user typed while an agent worked must not approve a call that was shown only later.
func TestChat_IgnoresAnswerTypedBeforeTheQuestion(t *testing.T) {
	d := newMesh(t)
	s := startChat(t, d)
	s.expect("> ")
	s.typeLine("slow")
	s.expect("You said slow.")
	s.typeLine("mail")
	s.typeLine("y")
	close(d.EndSlowTurn)
	s.expect("Not used as an answer, because you typed it earlier: y")
	s.expect("Enter (later): ")
	s.typeLine("n")
	s.expect("Heard 2-1-2: deny")
	req, _ := d.LastRequest()
	require.Equal(t, troupev1.OnBusy_ON_BUSY_UNSPECIFIED, req.GetOnBusy())
}
