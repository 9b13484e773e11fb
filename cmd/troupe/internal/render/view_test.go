package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestView_PrintsToolProgressAndParent(t *testing.T) {
	var out strings.Builder
	v := &View{Terminal: console.Terminal{Out: &out}}
	v.PrintEvent(&troupev1.Event{Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{
		Tool:    "search",
		Message: "page 3\nof 12", Fraction: new(0.25),
	}}})
	v.PrintEvent(&troupev1.Event{Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{Tool: "search", Message: "still"}}})
	v.PrintEvent(&troupev1.Event{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Parent: &troupev1.Parent{
		TraceId: "above", Step: 2,
		Call: 3,
	}}}})
	require.Contains(t, out.String(), "tool search … 25 % page 3")
	require.Contains(t, out.String(), "tool search … still")
	require.Contains(t, out.String(), "trace above  step 2  call 3")
}

// Req: AD-37
func TestView_PrintsEventsOfTheAgentsOwnKinds(t *testing.T) {
	var out strings.Builder
	v := &View{Terminal: console.Terminal{Out: &out}}
	for _, data := range []string{`{"id":7}`, "", `"` + strings.Repeat("x", 300) + `"`} {
		v.PrintEvent(&troupev1.Event{Payload: &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: "order.placed", Data: data}}})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, `event     order.placed {"id":7}`, lines[0])
	require.Equal(t, `event     order.placed`, lines[1])
	require.Less(t, len(lines[2]), 240)
}
