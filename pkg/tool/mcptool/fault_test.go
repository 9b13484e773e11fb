package mcptool_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/tool/mcptool"
)

func TestServer_RestartsForTheNextCall(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "die", "die.reading", "pid"))
	for range 2 {
		pid := a.mustCall("pid", ``)
		_, err := a.call("die", ``)
		require.True(t, failure.Is(err, failure.UnknownOutcome), "%v", err)
		require.ErrorContains(t, err, "the tool die lost its server while it ran: whether it took effect is unknown")
		again := a.mustCall("pid", ``)
		require.NotEqual(t, pid, again)
	}
	_, err := a.call("die_reading", ``)
	require.True(t, failure.Is(err, failure.ResourceTool), "%v", err)
	require.ErrorContains(t, err, "it does no harm to call it again")
	require.NotEmpty(t, a.mustCall("pid", ``))
}

func TestServer_BacksOffWhileItDoesNotStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := testConfig(t, "good", "die", "pid")
	c.Dir = folder + "/gone"
	require.NoError(t, os.Mkdir(c.Dir, 0o700))
	a := startTools(t, c)
	require.NoError(t, os.Remove(c.Dir))
	_, err := a.call("die", ``)
	require.Error(t, err)

	_, err = a.call("pid", ``)
	require.ErrorContains(t, err, "did not start")
	_, err = a.call("pid", ``)
	require.ErrorContains(t, err, "; it is tried again in ")
	require.NoError(t, os.Mkdir(c.Dir, 0o700))
	require.Eventually(t, func() bool {
		_, err := a.call("pid", ``)
		return err == nil
	}, waitTimeout, 50*time.Millisecond)
}

func TestCall_EndsAtItsTimeout(t *testing.T) {
	c := testConfig(t, "good", "hang", "pid")
	c.CallTimeout = 300 * time.Millisecond
	a := startTools(t, c)
	pid := a.mustCall("pid", ``)
	_, err := a.call("hang", ``)
	require.True(t, failure.Is(err, failure.UnknownOutcome), "%v", err)
	require.ErrorContains(t, err, "did not answer within 300ms and was cancelled")
	a.awaitLog("hang was cancelled")
	require.Equal(t, pid, a.mustCall("pid", ``), "a server that still answers goes on")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = a.callWithContext(ctx, "hang", ``)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A process under SIGSTOP does not answer, and only SIGKILL ends it. The server must still be replaced.
func TestServer_IsReplacedWhenItHangs(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "good", "stop", "pid")
	c.CallTimeout = 300 * time.Millisecond
	a := startTools(t, c)
	pid := a.mustCall("pid", ``)
	_, err := a.call("stop", ``)
	require.ErrorContains(t, err, "did not answer within 300ms")
	require.NotEqual(t, pid, a.mustCall("pid", ``))
	awaitProcessEnd(t, pid)
}

func TestServer_StopsWhenItsAgentCloses(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"good", "deaf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server, err := mcptool.New(testConfig(t, mode, "pid", "child"))
			require.NoError(t, err)
			set, err := tool.NewSet(server.Tools()...)
			require.NoError(t, err)
			a := &startedTools{Set: set, t: t}
			for _, tl := range set.Tools() {
				require.NoError(t, tl.(tool.Starter).Start(t.Context()))
			}
			pid, child := a.mustCall("pid", ``), a.mustCall("child", ``)
			require.NoError(t, set.Tools()[0].(tool.Starter).Close())
			require.Equal(t, pid, a.mustCall("pid", ``), "another tool still needs it")
			require.NoError(t, set.Tools()[1].(tool.Starter).Close())
			awaitProcessEnd(t, pid)
			awaitProcessEnd(t, child)

			for _, tl := range set.Tools() { // and it can be started again
				require.NoError(t, tl.(tool.Starter).Start(t.Context()))
			}
			require.NotEqual(t, pid, a.mustCall("pid", ``))
			for _, tl := range set.Tools() {
				require.NoError(t, tl.(tool.Starter).Close())
			}
		})
	}
}

func TestServer_ToleratesSlowNoisyAndOldServers(t *testing.T) {
	for mode, says := range map[string]string{
		"lazy":   "hello from lazy",
		"greets": "Server is listening on stdio {not JSON}",
		"old":    "expected initialize",
	} {
		t.Run(mode, func(t *testing.T) {
			a := startTools(t, testConfig(t, mode, "add"))
			require.Equal(t, "3", a.mustCall("add", `{"a": 1, "b": 2}`))
			a.awaitLog(says)
		})
	}
}

func TestStart_ErrorContainsTheReason(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"broken":  "did not start: it ended; it said: hello from broken / no such database",
		"silent":  "did not start within 2s; it said: hello from silent",
		"floods":  "did not start",
		"endless": "did not start",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t, mode, "add")
			c.StartTimeout = 2 * time.Second
			server, err := mcptool.New(c)
			require.NoError(t, err)
			began := time.Now()
			err = server.Tools()[0].(tool.Starter).Start(t.Context())
			require.ErrorContains(t, err, want)
			require.True(t, failure.Is(err, failure.ResourceTool), "%v", err)
			require.Less(t, time.Since(began), 15*time.Second)
		})
	}

	c := testConfig(t, "good", "ad")
	server, err := mcptool.New(c)
	require.NoError(t, err)
	require.ErrorContains(t, server.Tools()[0].(tool.Starter).Start(t.Context()), `has no tool "ad"; did you mean "add"?`)
	c.Command = []string{"/no/such/program"}
	server, err = mcptool.New(c)
	require.NoError(t, err)
	require.ErrorContains(t, server.Tools()[0].(tool.Starter).Start(t.Context()), "/no/such/program cannot be run")
}

func TestServer_CannotChangeItsToolsWhileAnAgentRuns(t *testing.T) {
	a := startTools(t, testConfig(t, "good", "add", "change"))
	add, _ := a.Find("add")
	was := add.Spec()
	a.mustCall("change", `{"a": 0}`)
	a.awaitLog("the server no longer offers a tool")
	_, err := a.call("add", `{"a": 1}`)
	require.ErrorContains(t, err, "the tool add is not offered by its server any more")

	a.mustCall("change", `{"a": 1}`)
	a.awaitLog("the server has changed the description of a tool")
	require.Equal(t, "2", a.mustCall("add", `{"a": 0, "b": 1}`))
	require.Equal(t, was, add.Spec())
}
