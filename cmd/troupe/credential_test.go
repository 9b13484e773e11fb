package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// The output for a call that lacks a credential names the credential and the command that supplies it.
func TestAsk_PrintsMissingCredential(t *testing.T) {
	d := newMesh(t)
	out, _ := d.RunCommand(t, console.ExitInputRequired, "", "ask", "--session", "s1", "fetch")
	for _, says := range []string{
		"fetch waits for a credential, and may run with it", `lacks      mailbox: The password of your mailbox.\x1b[2J`, `from       https://mail.example.org/\x1b[2J`,
		"troupe answer s1 1-1-2\n", "troupe deny s1 1-1-2 --reason WHY",
	} {
		require.Contains(t, out, says)
	}
	out, _ = d.RunCommand(t, 0, "", "get", "approvals")
	require.Regexp(t, `s1 +1-1-2 +fetch +auth `, out)
	_, told := d.RunCommand(t, 2, "", "approve", "s1")
	require.Contains(t, told, "nothing in session s1 waits for an approval")
	out, _ = d.RunCommand(t, 0, "", "deny", "s1", "1-1-2", "--reason", "not mine")
	require.Contains(t, out, "Heard 1-1-2: deny: not mine")
}
