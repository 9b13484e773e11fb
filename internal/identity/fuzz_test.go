package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse checks that an accepted id prints as the parsed text, so no id has a second spelling.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "spiffe://mesh/orchestrator", "spiffe://mesh/memory", "spiffe://mesh/worker/research", "spiffe://mesh/admin/ann", "spiffe://mesh/worker/", "spiffe://mesh/worker/a/b",
		"SPIFFE://mesh/memory", "spiffe://MESH/memory", "spiffe://mesh/memory/", "spiffe://mesh//memory", "spiffe://mesh/%6demory", "spiffe://mesh/./memory", "spiffe://u@mesh/memory", "spiffe://mesh:1/memory", "spiffe://mesh/memory?x#y",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := Parse(text)
		if err != nil {
			return
		}
		require.Equal(t, text, id.String())
	})
}
