package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/session"
)

func TestConfig_RejectsInvalidMaintenance(t *testing.T) {
	for flag, c := range map[string]SessionConfig{
		"--session-retention": {SessionRetention: time.Second},
		"--compact-above":     {CompactAbove: session.MaxMessages},
		"--compact-keep":      {CompactAbove: 10, CompactKeep: 11},
		"--keep-journals":     {KeepJournals: 8 * 24 * time.Hour},
	} {
		cfg := Config{Sessions: c}
		require.ErrorContains(t, cfg.Validate(), flag)
	}
	for _, c := range []SessionConfig{{}, {SessionRetention: time.Hour, CompactAbove: 10, CompactKeep: 10}} {
		cfg := Config{Sessions: c}
		require.NoError(t, cfg.Validate())
	}
}
