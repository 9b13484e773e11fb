package trial_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/mutants/internal/trial"
	"github.com/troupe-dev/troupe/test/overlay"
)

// A module with one function and its tests is tried with changes of each kind.
func TestTrial_TellsWhatATestNoticed(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("m.go", "package m\n\nfunc Double(n int) int { return 2 * n }\n")
	write("m_test.go", `package m

import "testing"

func TestDouble(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if Double(2) != 4 {
			t.Error("wrong")
		}
	})
}

func TestNothing(t *testing.T) {}
`)
	for _, c := range []struct {
		name, find, replace, test string
		want                      trial.Verdict
	}{
		{"without a change", "", "", "TestDouble", trial.Survived},
		{"noticed", "2 * n", "3 * n", "TestDouble", trial.Killed},
		{"noticed by a subtest", "2 * n", "3 * n", "TestDouble/of two", trial.Killed},
		{"noticed by any test", "2 * n", "3 * n", "", trial.Killed},
		{"equal for the tested number", "2 * n", "n + 2", "TestDouble", trial.Survived},
		{"a test of something else", "2 * n", "3 * n", "TestNothing", trial.Survived},
		{"it does not compile", "2 * n", "2 * m", "TestDouble", trial.Unbuildable},
		{"the snippet is not there", "4 * n", "3 * n", "TestDouble", trial.Unbuildable},
		{"it panics", "return 2 * n", "return 2 / (n - n)", "TestDouble", trial.Panicked},
		{"there is no such test", "2 * n", "3 * n", "TestTriple", trial.Missing},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := trial.Trial{Root: root, Package: ".", Test: c.test}
			if c.find != "" {
				tr.Change = overlay.Change{File: "m.go", Find: c.find, Replacement: c.replace}
			}
			got, out, err := tr.Run(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, got, out)
		})
	}
}
