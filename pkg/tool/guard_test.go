package tool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/tool"
)

func TestGuard_Stricter(t *testing.T) {
	for _, tc := range [][3]tool.Guard{
		{"", tool.GuardAsk, tool.GuardAsk},
		{tool.GuardOff, "", tool.GuardOff},
		{tool.GuardOff, tool.GuardAsk, tool.GuardAsk},
		{tool.GuardStrict, tool.GuardAsk, tool.GuardStrict},
		{tool.GuardAsk, tool.GuardStrict, tool.GuardStrict},
	} {
		require.Equal(t, tc[2], tc[0].Stricter(tc[1]), "%v", tc)
	}
	require.False(t, tool.Guard("on").IsKnown())
}
