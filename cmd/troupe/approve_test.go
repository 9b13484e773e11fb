package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Req: AD-32, LP-16
func TestAsk_ShowsWhatWaitsAndHowToAnswer(t *testing.T) {
	d := newDesk(t)
	out, _ := d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "--user", "alice", "mails")
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
		server{Addr: "10.0.0.1:7400"}.ways("s1", mail("1-1-2")), "a command works as it is printed")
	require.Equal(t, []string{`troupe answer s1 'a;\n'\''b' RESULT`}, server{Addr: "127.0.0.1:7400"}.ways("s1", number("a;\n'b")))
}

func TestArguments_AreWholeAndReadable(t *testing.T) {
	require.Equal(t, `{"a": 1}`, arguments(" {\"a\": 1}\n"))
	long := strings.Repeat("x", 100)
	require.Equal(t, "{\n  \"a\": \""+long+"\",\n  \"b\": 2\n}", arguments(`{"a":"`+long+`","b":2}`))
	require.Equal(t, long+`\n  call 1-3  safe`, arguments(long+"\n  call 1-3  safe"), "what is no JSON has no lines of its own")
	require.NotContains(t, arguments(`{"a":"`+long+"\u2028\u200b\u202e"+`"}`), "\u202e")
}

// verdicts are what the latest answers say.
func (d *desk) verdicts() map[string]string {
	said := map[string]string{}
	_, answers := d.last()
	for _, a := range answers {
		said[a.GetId()] = strings.TrimPrefix(a.GetVerdict().String(), "CALL_VERDICT_") + " " + a.GetText()
	}
	return said
}

func TestApprove_AnswersWhatWaits(t *testing.T) {
	d := newDesk(t)
	d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "--user", "alice", "mails")

	// All that wait for an approval, and the rest of the turn.
	out, shown := d.troupe(t, exitInputRequired, "", "approve", "s1", "--actor", "alice@example.com")
	require.Contains(t, shown, "call       1-1-2  send_mail", "nobody approves what was not shown")
	require.Contains(t, shown, "call       1-1-3  send_mail")
	require.Empty(t, cmp.Diff(map[string]string{"1-1-2": "APPROVE ", "1-1-3": "APPROVE "}, d.verdicts()))
	req, _ := d.last()
	require.Equal(t, "alice", req.GetUserId(), "an answer is that of the session's user")
	require.Equal(t, "alice@example.com", req.GetAuth().GetActor())
	require.Contains(t, out, "answer    1-1-2: approve\n")
	require.Contains(t, out, "troupe answer s1 2-1-4 RESULT", "the rest waits on")

	d.troupe(t, process.ExitOK, "", "answer", "s1", "2-1-4", "forty", "two")
	require.Empty(t, cmp.Diff(map[string]string{"2-1-4": "SUCCEED forty two"}, d.verdicts()))

	_, said := d.troupe(t, process.ExitUsage, "", "approve", "s1")
	require.Equal(t, "troupe: nothing in session s1 waits for an approval; see what waits with: troupe get approvals\n", said)
	_, said = d.troupe(t, process.ExitError, "", "approve", "nobody")
	require.Equal(t, "troupe: there is no session nobody\n", said)
}

func TestApprove_TakesNamedCallsAsTheyAre(t *testing.T) {
	d := newDesk(t)
	d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "mails")
	_, shown := d.troupe(t, exitInputRequired, "", "approve", "s1", "1-1-3", "1-1-3", "--request-id", "r1")
	require.Empty(t, shown)
	require.Empty(t, cmp.Diff(map[string]string{"1-1-3": "APPROVE "}, d.verdicts()))
	req, _ := d.last()
	require.Equal(t, "r1", req.GetRequestId())
	out, _ := d.troupe(t, exitInputRequired, "", "approve", "s1", "1-1-3", "--request-id", "r1", "--json")
	require.Contains(t, out, `"answers"`, "the call can be repeated")
}

func TestDeny_SaysWhyAndStops(t *testing.T) {
	d := newDesk(t)
	d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "mail")
	d.troupe(t, process.ExitOK, "", "deny", "s1", "1-1-2", "--reason", "Bob has left")
	require.Empty(t, cmp.Diff(map[string]string{"1-1-2": "DENY Bob has left"}, d.verdicts()))
	d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "mails")
	d.troupe(t, process.ExitOK, "", "deny", "s1", "--stop")
	require.Empty(t, cmp.Diff(map[string]string{"3-1-2": "STOP ", "3-1-3": "STOP "}, d.verdicts()))
}

func TestAnswer_ReadsStandardInput(t *testing.T) {
	d := newDesk(t)
	for input, want := range map[string]string{"4\n2\r\n": "4\n2", "": "", "-": "-"} {
		d := newDesk(t)
		d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "number")
		d.troupe(t, process.ExitOK, input, "answer", "s1", "1-1-2", "-", "--failed")
		_, answers := d.last()
		require.Empty(t, cmp.Diff([]*troupev1.CallAnswer{{Id: "1-1-2", Verdict: troupev1.CallVerdict_CALL_VERDICT_FAIL, Text: want}}, answers, protocmp.Transform()))
	}
	for _, unfit := range []string{strings.Repeat("x", 256<<10+1), "\xff"} {
		_, said := d.troupe(t, process.ExitUsage, unfit, "answer", "s1", "1-1-2", "-")
		require.Contains(t, said, "want at most 262144 bytes of UTF-8")
	}
}

func TestGetApprovals_ListsAllThatWaits(t *testing.T) {
	d := newDesk(t)
	d.troupe(t, exitInputRequired, "", "ask", "--session", "s1", "mail")
	d.troupe(t, process.ExitOK, "", "ask", "--session", "s2", "hello")
	d.troupe(t, exitInputRequired, "", "ask", "--session", "s3", "number")
	out, _ := d.troupe(t, process.ExitOK, "", "get", "approvals")
	require.Regexp(t, `^SESSION +CALL +TOOL +FOR +AGENT +AGE +TIME +ARGUMENTS\n`+
		`s1 +1-1-2 +send_mail +approval +clerk +\d+s +(1h0m0s|59m\d+s) left +\{"to":"bob@example.com","text":"\\u202ehi\\x1b\[2J"\}\n`+
		`s3 +1-1-2 +ask_number +result +clerk +\d+s +- +\{\}\n$`, out)
	out, _ = d.troupe(t, process.ExitOK, "", "get", "approvals", "--json")
	require.Contains(t, out, `"waitingTurnId"`)
	require.NotContains(t, out, "s2")
	out, _ = d.troupe(t, process.ExitOK, "", "describe", "session", "s1")
	require.Contains(t, out, "waits          1-1-2 send_mail for an approval, ")
}
