package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormatCount_UsesSingularForOne(t *testing.T) {
	require.Equal(t, []string{"0 turns", "1 turn", "2 turns"}, []string{FormatCount(0, "turn"), FormatCount(1, "turn"), FormatCount(2, "turn")})
}
