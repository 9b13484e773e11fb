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
