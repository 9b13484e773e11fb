package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/session"
)

func TestConfig_RefusesUpkeepThatCannotBe(t *testing.T) {
	for flag, c := range map[string]Config{
		"--session-retention": {SessionRetention: time.Second},
		"--compact-above":     {CompactAbove: session.MaxMessages},
		"--compact-keep":      {CompactAbove: 10, CompactKeep: 11},
		"--keep-journals":     {KeepJournals: 8 * 24 * time.Hour},
	} {
		require.ErrorContains(t, c.Validate(), flag)
	}
	for _, c := range []Config{{}, {SessionRetention: time.Hour, CompactAbove: 10, CompactKeep: 10}} {
		require.NoError(t, c.Validate())
	}
}
