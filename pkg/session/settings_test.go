package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// A strategy that is not one of the three is refused before it reaches a store, which could not name it on the wire.
//
// Req: LP-26
func TestSettings_UnknownStrategyIsRefused(t *testing.T) {
	err := session.Settings{AutoCompact: true, Strategy: "magic"}.Check("op")
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.ErrorContains(t, err, `strategy: "magic" is unknown; use `)
}
