package execution

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStep_ResumedTurnKeepsCallKeys(t *testing.T) {
	require.Equal(t, "t1", Step{TurnID: "t1"}.CallTurn())
	require.Equal(t, "t1", Step{TurnID: "t2", OriginTurnID: "t1"}.CallTurn())
}
