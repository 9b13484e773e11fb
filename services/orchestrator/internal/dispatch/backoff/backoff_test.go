package backoff

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

func TestBackoffs_EndByThemselvesOrWhenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, silent := errors.New("full"), errors.New("silent")
		isFull := func(err error) bool { return errors.Is(err, full) }
		b, one, two := New(), registry.Instance{Agent: "a", ID: "1", Incarnation: 1}, registry.Instance{Agent: "a", ID: "2", Incarnation: 1}
		b.Add(one, time.Second, full)
		b.Add(two, 2*time.Second, silent)
		require.Equal(t, map[instances.Incarnation]error{instances.IncarnationOf(one): full, instances.IncarnationOf(two): silent}, b.Errors("a"))
		require.Empty(t, b.Errors("b"))

		b.Cancel(one, isFull)
		b.Cancel(two, isFull)
		require.Equal(t, map[instances.Incarnation]error{instances.IncarnationOf(two): silent}, b.Errors("a"), "it backs off for another reason")
		anew := two
		anew.Incarnation++
		require.NotContains(t, b.Errors("a"), instances.IncarnationOf(anew))
		time.Sleep(2 * time.Second)
		require.Empty(t, b.Errors("a"))
	})
}
