package interact

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Req: AD-32, LP-16
func TestAsk_PrintsPendingCallsAndAnswerCommands(t *testing.T) {
	d := newMesh(t)
	out, _ := d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "--user", "alice", "mails")
	for _, want := range []string{
		"\n          tool send_mail waits for an approval\n",
		"\n  call       1-1-2  send_mail waits for an approval\n",
		"\n  risk       at_most_once: may do harm if it runs again\n",
		"\n  reason     Mails leave the house.\n",
		"left; an answer after that counts as a denial\n",
		"\n  arguments  " + `{"to":"bob@example.com","text":"\u202ehi\x1b[2J"}` + "\n",
		"\n  call       1-1-4  ask_number waits for a result, for it is yours to run\n",
		"\n  troupe approve s1 1-1-2\n  troupe deny s1 1-1-2 --reason WHY\n",
		"\n  troupe answer s1 1-1-4 RESULT\n",
		"troupe ask --session s1 --user alice …\n",
	} {
		require.Contains(t, out, want)
	}
	t.Setenv("TROUPE_ADDR", "")
	require.Equal(t, []string{"troupe approve --addr 10.0.0.1:7400 s1 1-1-2", "troupe deny --addr 10.0.0.1:7400 s1 1-1-2 --reason WHY"},
		render.AnswerCommands(remote.Server{Addr: "10.0.0.1:7400"}, "s1", clitest.MailCall("1-1-2")), "a command works as it is printed")
	require.Equal(t, []string{`troupe answer s1 'a;\n'\''b' RESULT`},
		render.AnswerCommands(remote.Server{Addr: "127.0.0.1:7400"}, "s1", clitest.NumberCall("a;\n'b")))
}

func TestApprove_ApprovesAllPendingCalls(t *testing.T) {
	d := newMesh(t)
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "--user", "alice", "mails")

	// The command prints each call that it approves, and then the rest of the turn.
	out, shown := d.RunCommand(t, console.ExitInputRequired, "", "approve", "s1", "--actor", "alice@example.com")
	require.Contains(t, shown, "call       1-1-2  send_mail", "the user sees what is approved")
	require.Contains(t, shown, "call       1-1-3  send_mail")
	require.Empty(t, cmp.Diff(map[string]string{"1-1-2": "APPROVE ", "1-1-3": "APPROVE "}, d.Verdicts()))
	req, _ := d.LastRequest()
	require.Equal(t, "alice", req.GetUserId(), "the user of the session answers")
	require.Equal(t, "alice@example.com", req.GetAuth().GetActor())
	require.Contains(t, out, "answer    1-1-2: approve\n")
	require.Contains(t, out, "troupe answer s1 2-1-4 RESULT", "the rest waits on")

	d.RunCommand(t, process.ExitOK, "", "answer", "s1", "2-1-4", "forty", "two")
	require.Empty(t, cmp.Diff(map[string]string{"2-1-4": "SUCCEED forty two"}, d.Verdicts()))

	_, said := d.RunCommand(t, process.ExitUsage, "", "approve", "s1")
	require.Equal(t, "troupe: nothing in session s1 waits for an approval; see what waits with: troupe get approvals\n", said)
	_, said = d.RunCommand(t, process.ExitError, "", "approve", "nobody")
	require.Equal(t, "troupe: there is no session nobody\n", said)
}

func TestApprove_SendsOnlyNamedCalls(t *testing.T) {
	d := newMesh(t)
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "mails")
	_, shown := d.RunCommand(t, console.ExitInputRequired, "", "approve", "s1", "1-1-3", "1-1-3", "--request-id", "r1")
	require.Empty(t, shown)
	require.Empty(t, cmp.Diff(map[string]string{"1-1-3": "APPROVE "}, d.Verdicts()))
	req, _ := d.LastRequest()
	require.Equal(t, "r1", req.GetRequestId())
	out, _ := d.RunCommand(t, console.ExitInputRequired, "", "approve", "s1", "1-1-3", "--request-id", "r1", "--json")
	require.Contains(t, out, `"answers"`, "the call can be repeated")
}

func TestDeny_SendsReasonAndStops(t *testing.T) {
	d := newMesh(t)
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "mail")
	d.RunCommand(t, process.ExitOK, "", "deny", "s1", "1-1-2", "--reason", "Bob has left")
	require.Empty(t, cmp.Diff(map[string]string{"1-1-2": "DENY Bob has left"}, d.Verdicts()))
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "mails")
	d.RunCommand(t, process.ExitOK, "", "deny", "s1", "--stop")
	require.Empty(t, cmp.Diff(map[string]string{"3-1-2": "STOP ", "3-1-3": "STOP "}, d.Verdicts()))
}

func TestAnswer_ReadsStandardInput(t *testing.T) {
	d := newMesh(t)
	for input, want := range map[string]string{"4\n2\r\n": "4\n2", "": "", "-": "-"} {
		d := newMesh(t)
		d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "number")
		d.RunCommand(t, process.ExitOK, input, "answer", "s1", "1-1-2", "-", "--failed")
		_, answers := d.LastRequest()
		require.Empty(t, cmp.Diff([]*troupev1.CallAnswer{{Id: "1-1-2", Verdict: troupev1.CallVerdict_CALL_VERDICT_FAIL, Text: want}}, answers,
			protocmp.Transform()))
	}
	for _, unfit := range []string{strings.Repeat("x", 256<<10+1), "\xff"} {
		_, said := d.RunCommand(t, process.ExitUsage, unfit, "answer", "s1", "1-1-2", "-")
		require.Contains(t, said, "want at most 262144 bytes of UTF-8")
	}
}
