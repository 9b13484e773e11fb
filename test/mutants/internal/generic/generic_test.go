package generic

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindEdits_ChangesConditionsConstantsAndStatements(t *testing.T) {
	const text = `package p

func f(n int) int {
	if n > 3 {
		n = 1
	}
	log.Info("not worth a change")
	call(n)
	m := n
	return m
}
`
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, "p.go", text, 0)
	require.NoError(t, err)
	var got []string
	for _, e := range findEdits(fset, tree, []byte(text)) {
		changed := text[:e.from] + e.text + text[e.to:]
		_, err := parser.ParseFile(fset, "p.go", changed, 0)
		require.NoError(t, err, changed)
		got = append(got, e.what)
	}
	require.ElementsMatch(t, []string{
		"negated condition n > 3", "moved constant 3", "moved constant 1", "dropped statement n = 1", "dropped statement call(n)",
	}, got)
}
