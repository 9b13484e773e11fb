package rate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/identity"
)

// Any rates file is either rejected or gives a table that a limiter can use.
func FuzzTable(f *testing.F) {
	for _, text := range []string{
		"", "turns: {rate: 1, burst: 1}", "turns: {rate: .inf}", "turns: {rate: 1e308, burst: 9223372036854775807}",
		"turns: {rate: 1e-308, burst: 1}", "a: &a [*a]", "turns: null", "[]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parse(text, Defaults())
		if err != nil {
			return
		}
		l := New(table)
		for method := range classes {
			for range 3 {
				_ = l.Admit(method, identity.Principal{Role: identity.Client}) // some tables reject the call
			}
		}
		require.Len(t, table, len(Defaults()))
	})
}
