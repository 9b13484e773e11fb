package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestFormatTools_NamesCapabilities(t *testing.T) {
	require.Equal(t, "search (docs, web), clock", formatTools([]*troupev1.InstanceTool{
		{Name: "search", Capabilities: []string{"docs", "web"}},
		{Name: "clock"},
	}))
}
