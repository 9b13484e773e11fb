package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// An empty list means that the step may use no tool. A missing list means that it may use all tools.
func TestStepFromProto_DistinguishesNoToolsFromAllTools(t *testing.T) {
	of := func(tools *troupev1.AllowedTools) *execution.Tools {
		return StepFromProto(&troupev1.ExecuteStepRequest{Tools: tools}).Tools
	}
	require.Nil(t, of(nil))
	require.Equal(t, &execution.Tools{}, of(&troupev1.AllowedTools{}))
	require.Equal(t, &execution.Tools{Names: []string{"search"}}, of(&troupev1.AllowedTools{Names: []string{"search"}}))
}
