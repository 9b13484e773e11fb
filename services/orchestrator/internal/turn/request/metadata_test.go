package request

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestCheckMetadata_LimitsTheTotalSize(t *testing.T) {
	require.NoError(t, CheckMetadata(nil))
	require.NoError(t, CheckMetadata(map[string]string{"ab": strings.Repeat("x", execution.MaxTurnMetadataBytes-2)}))
	err := CheckMetadata(map[string]string{"ab": strings.Repeat("x", execution.MaxTurnMetadataBytes-1)})
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, "metadata: its names and values are 16385 bytes, and may be 16384")
}
