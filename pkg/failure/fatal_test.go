package failure_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Req: LC-39
func TestFatal_MarksAnErrorAndWhatItCauses(t *testing.T) {
	gone := errors.New("gone")
	broken := failure.New(failure.ResourceTool, "device", "the device is gone")
	for name, e := range map[string]*failure.Error{
		"marked":             broken.Fatal(),
		"twice":              broken.Fatal().Fatal(),
		"with a cause":       broken.Because(gone).Fatal(),
		"with a cause later": broken.Fatal().Because(gone),
		"with a fact":        broken.Fatal().With("device", "gpu"),
		"as a cause":         failure.New(failure.AgentLogic, "agent", "failed").Because(broken.Fatal()),
		"deep in the causes": failure.New(failure.AgentLogic, "agent", "failed").Because(fmt.Errorf("tool: %w", broken.Fatal())),
	} {
		require.True(t, e.IsFatal(), name)
	}
	require.False(t, broken.IsFatal())
	require.False(t, broken.Because(gone).IsFatal())
	require.ErrorIs(t, broken.Because(gone).Fatal(), gone)
	require.ErrorIs(t, broken.Fatal().Because(gone), gone)
	require.Equal(t, broken.Because(gone).Error(), broken.Fatal().Because(gone).Error())
}
