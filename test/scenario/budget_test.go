package scenario

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// A turn makes only the Redis writes that docs/turn.md lists. The session gets one BeginTurn and one commit per
// step, and no data is read back. Only tool calls write to the journal. Trace events that wait at the same time
// are written together.
func turnMakesOnlyDocumentedWrites(t *testing.T, m *rig.Mesh) {
	for _, c := range []struct {
		name   string
		target string
		steps  int
	}{
		{"one step", "clarification", 1},
		{"three steps", "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := textRequest(question)
			req.Target = c.target
			var events []*troupev1.Event
			seen := monitorRedis(t, m.Stores.Redis.Addr, func() { events = runTurn(t, m, req) })

			var session, trace int
			for _, command := range seen {
				switch {
				case strings.Contains(command, "m:{default/"+req.GetSessionId()):
					session++
					require.Contains(t, command, `"evalsha" `, "a script, and only a script")
				case strings.Contains(command, "o:{default/"+events[0].GetTraceId()):
					trace++
				}
			}
			require.GreaterOrEqual(t, session, 1+c.steps, "BeginTurn, and a commit per step")
			require.LessOrEqual(t, session, 1+c.steps+countJournalEntries(events), "and at worst a write for each entry of a journal")
			require.LessOrEqual(t, trace, len(durableEvents(events)), "at worst a write an event")
			t.Logf("%d commands for the session, of which at most %d could be for journals, %d for the %d events of the trace", session,
				countJournalEntries(events), trace, len(durableEvents(events)))
		})
	}
}

// countJournalEntries returns the number of journal entries of a turn. There is one for each model reply that
// calls tools, and two for each call: its intent and its result. The last reply of a step is committed with the
// step.
func countJournalEntries(events []*troupev1.Event) (entries int) {
	for _, e := range events {
		switch {
		case e.GetModelCall().GetToolCalls() > 0:
			entries++
		case e.GetToolCallFinished() != nil:
			entries += 2
		}
	}
	return entries
}

// monitorRedis returns the commands that clients send to Redis while do runs. It omits commands that scripts run.
func monitorRedis(t *testing.T, addr string, do func()) (commands []string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 16<<20)
	send := func(command string) {
		_, err := conn.Write([]byte(command + "\r\n"))
		require.NoError(t, err)
	}
	for _, command := range []string{"AUTH admin admin", "MONITOR"} {
		send(command)
		require.True(t, lines.Scan(), lines.Err())
		require.Equal(t, "+OK", lines.Text())
	}
	do()
	end := time.Now().String() // a unique mark
	other, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	_, err = other.Write([]byte("AUTH admin admin\r\n" + `ECHO "` + end + `"` + "\r\n"))
	require.NoError(t, err)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.Contains(line, end):
			return commands
		case !strings.Contains(line, " lua]"):
			commands = append(commands, line)
		}
	}
	require.FailNow(t, "the monitor ended", "%v", lines.Err())
	return nil
}
