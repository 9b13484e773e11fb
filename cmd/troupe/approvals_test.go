package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
)

func TestGetApprovals_ListsPendingCalls(t *testing.T) {
	d := newMesh(t)
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "mail")
	d.RunCommand(t, process.ExitOK, "", "ask", "--session", "s2", "hello")
	d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s3", "number")
	out, _ := d.RunCommand(t, process.ExitOK, "", "get", "approvals")
	require.Regexp(t, `^SESSION +CALL +TOOL +FOR +AGENT +AGE +TIME +ARGUMENTS\n`+
		`s1 +1-1-2 +send_mail +approval +clerk +\d+s +(1h0m0s|59m\d+s) left +\{"to":"bob@example.com","text":"\\u202ehi\\x1b\[2J"\}\n`+
		`s3 +1-1-2 +ask_number +result +clerk +\d+s +- +\{\}\n$`, out)
	out, _ = d.RunCommand(t, process.ExitOK, "", "get", "approvals", "--json")
	require.Contains(t, out, `"waitingTurnId"`)
	require.NotContains(t, out, "s2")
	out, _ = d.RunCommand(t, process.ExitOK, "", "describe", "session", "s1")
	require.Contains(t, out, "waits          1-1-2 send_mail for an approval, ")
}
