package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCount_UsesSingularForOne(t *testing.T) {
	require.Equal(t, []string{"0 turns", "1 turn", "2 turns"}, []string{Count(0, "turn"), Count(1, "turn"), Count(2, "turn")})
}
