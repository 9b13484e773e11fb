package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

func TestCheckLabels_LimitsTheTotalSize(t *testing.T) {
	require.NoError(t, checkLabels(nil))
	require.NoError(t, checkLabels(map[string]string{"ab": strings.Repeat("x", memory.MaxSessionMetadataBytes-2)}))
	err := checkLabels(map[string]string{"ab": strings.Repeat("x", memory.MaxSessionMetadataBytes-1)})
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, "metadata: its names and values are 16385 bytes, and may be 16384")
}
