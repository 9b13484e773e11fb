package customevent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/customevent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Req: AD-37
func TestCounter_RejectsInvalidEvents(t *testing.T) {
	for _, name := range []string{"a", "order.placed", "a_b-c.9", strings.Repeat("a", 64)} {
		require.NoError(t, new(customevent.Counter).Admit(event.Custom{Name: name}), name)
	}
	for _, name := range []string{"", "A", "9", ".a", "a b", "ä", "a\n", strings.Repeat("a", 65)} {
		err := new(customevent.Counter).Admit(event.Custom{Name: name})
		require.True(t, failure.Is(err, failure.AgentLogic), name)
		require.ErrorContains(t, err, "use a name of 1 to 64")
	}
	largest := event.Custom{Name: "a", Data: json.RawMessage(`"` + strings.Repeat("x", event.MaxCustomData-2) + `"`)}
	require.NoError(t, new(customevent.Counter).Admit(largest))
	for wrong, data := range map[string]string{
		"65537 bytes of data are too many; use at most 65536": `"` + strings.Repeat("x", event.MaxCustomData-1) + `"`,
		"not JSON":          `{"open"`,
		"not JSON in UTF-8": "\"\xff\"",
	} {
		err := new(customevent.Counter).Admit(event.Custom{Name: "a", Data: json.RawMessage(data)})
		require.True(t, failure.Is(err, failure.AgentLogic), wrong)
		require.ErrorContains(t, err, wrong)
	}
}

// Req: AD-37
func TestCounter_BoundsAStep(t *testing.T) {
	var count customevent.Counter
	for range event.MaxCustomEvents {
		require.NoError(t, count.Admit(event.Custom{Name: "a"}))
		require.Error(t, count.Admit(event.Custom{Name: "?"}), "it does not count")
	}
	err := count.Admit(event.Custom{Name: "a"})
	require.True(t, failure.Is(err, failure.ResourceQuota))
	require.ErrorContains(t, err, "at most 256 events")

	var size customevent.Counter
	large := event.Custom{Name: "abcd", Data: json.RawMessage(`"` + strings.Repeat("x", event.MaxCustomData-6) + `"`)} // 64 KiB with its name
	for range event.MaxCustomBytes / event.MaxCustomData {
		require.NoError(t, size.Admit(large))
	}
	err = size.Admit(event.Custom{Name: "a"})
	require.True(t, failure.Is(err, failure.ResourceQuota))
	require.ErrorContains(t, err, "at most 1048576 bytes")
}
