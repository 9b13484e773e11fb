package manifest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/manifest"
)

// A file is either read or rejected with an error that names the file. Every document that is read can be decoded.
func FuzzLoad(f *testing.F) {
	const head = "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: a}\n"
	for _, text := range []string{
		"", "---\n---\n", "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec: {model: m}\n",
		"apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec: {tools: [{builtin: x, with: {a: [1, 2]}}]}\n",
		"a: &a [*a]\n", "a: &a {b: *a}\n", "<<: {kind: Agent}\n", "kind: !!binary aGk=\n", "? [a]\n: b\n", "\xff\xfe", "kind: \"\\u0000\"\n",
		head + "spec: {a: &a [*a], with: *a}\n", head + "spec: {a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}\n",
		"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nspec: [*c,*c,*c,*c]\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		docs, err := manifest.Load(fstest.MapFS{"a.yaml": {Data: []byte(text)}})
		if err != nil {
			require.NotEmpty(t, err.Error())
		}
		for _, d := range docs {
			var into struct {
				Model string
				Tools []struct {
					Builtin string
					With    map[string]any
				}
			}
			_ = d.Decode(&into) // an error is as good as success
			_ = d.Digest()
			_ = d.FieldTexts("with")
		}
	})
}
