package interact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTurnOptionFlags_ToRepeatContainAllOptions(t *testing.T) {
	require.Equal(t, " --profile fast --need law --need tax --metadata 'a=b'",
		turnOptionFlags{Profile: "fast", Need: []string{"law", "tax"}, Metadata: map[string]string{"a": "b"}}.flagsToRepeat())
}
