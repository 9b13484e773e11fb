package execution_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	rootID  = "11111111111111111111111111111111"
)

func newOrigin() execution.Origin {
	return execution.Origin{
		TraceID: traceID, RootTraceID: rootID, RequestID: "r-1", Profile: "fast", UserIntent: "What may an agent write?", UserID: "ann",
		MemoryScope: "user:ann", ConversationID: "s-1", SessionID: "s-1", Metadata: map[string]string{"team": "blue"},
		Created: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC),
	}
}

func newContext(t *testing.T, o execution.Origin) execution.Context {
	t.Helper()
	c, err := execution.NewContext(o)
	require.NoError(t, err)
	return c
}

// Req: OC-7
func TestContext_IsImmutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin()
		c := newContext(t, o)
		before := c.Origin()
		require.Equal(t, newOrigin(), before)
		_, ok := c.Parent()
		require.False(t, ok)

		o.Metadata["team"] = "red" // changes the caller's map
		c.Origin().Metadata["team"] = "green"
		_, err := c.WithMetadata(map[string]string{"team": "white", "more": "1"})
		require.NoError(t, err)
		_, err = c.WithProfile("slow")
		require.NoError(t, err)
		_ = c.WithRequestID("r-2")
		child := c.WithUserIntent("something else")
		parent, _ := child.Parent()
		parent.Origin().Metadata["team"] = "black"
		require.Equal(t, before, c.Origin())
		require.Equal(t, "blue", c.Metadata("team"))

		least := newContext(t, execution.Origin{TraceID: traceID})
		require.Equal(t, execution.Origin{TraceID: traceID, RootTraceID: traceID, Profile: "default", Created: time.Now()}, least.Origin())
		require.Equal(t, "default", least.Profile())
	})
}

// Req: OC-8
func TestContext_DerivedContextsKeepTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContext(t, newOrigin())
		child := c.WithUserIntent("find the rules")
		parent, ok := child.Parent()
		require.True(t, ok)
		require.Equal(t, c, parent)
		want := newOrigin()
		want.UserIntent, want.Created = "find the rules", time.Now()
		require.Equal(t, want, child.Origin(), "created anew, with the same trace")

		labelled, err := child.WithMetadata(map[string]string{"team": "red", "tier": "gold"})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"team": "red", "tier": "gold"}, labelled.Origin().Metadata)
		kept, ok := labelled.Parent()
		require.True(t, ok)
		require.Equal(t, c, kept)

		again := c.WithRequestID("r-2")
		want = newOrigin()
		want.RequestID = "r-2"
		require.Equal(t, want, again.Origin())
		slow, err := c.WithProfile("slow")
		require.NoError(t, err)
		want = newOrigin()
		want.Profile = "slow"
		require.Equal(t, want, slow.Origin())
		for _, newContext := range []execution.Context{child, labelled, again, slow} {
			require.Equal(t, traceID, newContext.TraceID())
		}
		require.Equal(t, newOrigin(), c.Origin(), "the original is as it was")
	})
}

// Req: OC-9
func TestContext_ValidatesAndEncodesFields(t *testing.T) {
	for says, change := range map[string]func(*execution.Origin){
		"trace_id is empty":                        func(o *execution.Origin) { o.TraceID = " " },
		`memory_scope "user:ann" needs a user_id`:  func(o *execution.Origin) { o.UserID = "" },
		`memory_scope "ann": use user:x`:           func(o *execution.Origin) { o.MemoryScope = "ann" },
		`conversation_id "s-1" needs a session_id`: func(o *execution.Origin) { o.SessionID = "" },
		`profile "Fast": use a to z`:               func(o *execution.Origin) { o.Profile = "Fast" },
		`metadata "note": a key has 1 to 64 bytes`: func(o *execution.Origin) { o.Metadata = map[string]string{"note": strings.Repeat("a", 1025)} },
	} {
		o := newOrigin()
		change(&o)
		_, err := execution.NewContext(o)
		require.True(t, failure.Is(err, failure.UserInvalidInput), says)
		require.ErrorContains(t, err, says)
	}
	child := newContext(t, newOrigin()).WithUserIntent("find the rules")
	text, err := json.Marshal(child)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	require.Equal(t, true, fields["has_parent"])
	require.NotContains(t, string(text), "What may an agent write?", "not the chain")

	var read execution.Context
	require.NoError(t, json.Unmarshal(text, &read))
	require.True(t, read.HasParent())
	_, ok := read.Parent()
	require.False(t, ok)
	want := child.Origin()
	want.Created = want.Created.Round(0) // the monotonic clock is not encoded
	require.True(t, want.Created.Equal(read.Origin().Created))
	want.Created = read.Origin().Created
	require.Equal(t, want, read.Origin())
	require.Contains(t, string(text), `"has_parent":true`)

	text, err = json.Marshal(newContext(t, newOrigin()))
	require.NoError(t, err)
	require.Contains(t, string(text), `"has_parent":false`)
	require.Error(t, json.Unmarshal([]byte(strings.Replace(string(text), traceID, "", 1)), &read), "what is read is checked")
}
