package admission

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Child turns are admitted even when the limit is reached, so that a parent never waits for its own permit. The
// fan-out limit of the parent bounds how many run at once.
func TestController_AdmitsChildrenUpToTheFanOut(t *testing.T) {
	g := newController(t, 1)
	above, ok := g.TryAdmit("a")
	require.True(t, ok)
	var children []*Permit
	for range 3 {
		p, err := g.AdmitChild("a", "x", 3)
		require.NoError(t, err)
		children = append(children, p)
	}
	_, err := g.AdmitChild("a", "x", 3)
	require.Equal(t, failure.Overloaded, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "no more than 3 child turns of trace x may run at once")
	_, hasDelay := failure.RetryAfter(err)
	require.True(t, hasDelay)

	other, err := g.AdmitChild("a", "y", 3)
	require.NoError(t, err, "another turn has its own")
	namesake, err := g.AdmitChild("b", "x", 3)
	require.NoError(t, err, "and so has another tenant")

	children[0].ReleaseChild()
	next, err := g.AdmitChild("a", "x", 3)
	require.NoError(t, err, "what has its result leaves room, before it has ended")
	children[0].Release(true)
	children[0].ReleaseChild() // has no effect any more
	_, err = g.AdmitChild("a", "x", 3)
	require.Equal(t, failure.Overloaded, failure.ModeOf(err), "once alone")

	for _, p := range append(children[1:], above, other, namesake, next) {
		p.Release(true)
	}
	require.True(t, g.isEmpty())
}
