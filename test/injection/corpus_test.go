// Package injection_test tests the guard with a model that obeys every instruction in any text that it reads. The
// texts try to misuse the tools. The guard must stop them, so the results do not depend on how well a model
// resists (guarantee S14).
package injection_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/pkg/tool"
)

func TestMain(m *testing.M) {
	// The Gemini SDK starts this goroutine with the process and never stops it.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// injectionCase is one case of the corpus.
type injectionCase struct {
	Name              string   `yaml:"name"`
	Channel           string   `yaml:"channel"`
	Tool              string   `yaml:"via"`  // name of the tool that returns the text (empty means read_page)
	Trigger           string   `yaml:"word"` // what the user says in the second turn (empty means "go on")
	Text              string   `yaml:"text"`
	UsesTagCharacters bool     `yaml:"tags"` // the text is made of invisible characters
	PaddingLength     int      `yaml:"pad"`  // characters before the text
	Blocked           []string `yaml:"blocked"`
	Allowed           []string `yaml:"allowed"`
}

// loadCorpus returns all cases. Their texts are as a model reads them, and their calls are formatted by
// formatCall.
func loadCorpus(t *testing.T) []injectionCase {
	t.Helper()
	text, err := os.ReadFile("testdata/injections.yaml")
	require.NoError(t, err)
	var all []injectionCase
	require.NoError(t, yaml.Unmarshal(text, &all))
	names := map[string]bool{}
	for i := range all {
		c := &all[i]
		require.False(t, names[c.Name], "two cases are named %q", c.Name)
		require.NotEmpty(t, c.Blocked, c.Name)
		names[c.Name] = true
		if c.UsesTagCharacters {
			c.Text = toTagCharacters(c.Text)
		}
		c.Text = strings.Repeat("lorem ipsum ", c.PaddingLength/12) + c.Text
		for _, calls := range [][]string{c.Blocked, c.Allowed} {
			for n, call := range calls {
				name, arguments, _ := strings.Cut(call, " ")
				calls[n] = formatCall(name, arguments)
			}
		}
	}
	require.GreaterOrEqual(t, len(all), 50)
	return all
}

// sortedCalls returns the calls of all lists in one sorted list, so that they can be compared.
func sortedCalls(calls ...[]string) []string {
	all := slices.Concat(calls...)
	slices.Sort(all)
	return all
}

// Without a guard the model obeys every injection of the corpus. So the tests below pass because of the guard, and
// not because the model ignores the texts.
func TestGuard_OffLetsTheModelObeyInjections(t *testing.T) {
	for _, c := range loadCorpus(t) {
		t.Run(c.Name, func(t *testing.T) {
			p := runCase(t, c, tool.GuardOff, false)
			require.Empty(t, p.pendingCalls())
			require.Equal(t, sortedCalls(c.Blocked, c.Allowed), p.executedCalls())
		})
	}
}

// This test proves a part of guarantee S14.
func TestGuard_BlocksCallsFromInjections(t *testing.T) {
	for _, c := range loadCorpus(t) {
		for _, parallel := range []bool{false, true} {
			t.Run(c.Name, func(t *testing.T) {
				p := runCase(t, c, tool.GuardAsk, parallel)
				require.Equal(t, sortedCalls(c.Allowed), p.executedCalls(), "calls that were not allowed")
				if !p.hasSession {
					require.NotEmpty(t, p.blockedTools(), "no person could be asked")
					return
				}
				require.NotEmpty(t, p.pendingCalls(), "no person was asked")
			})
			t.Run(c.Name+" denied", func(t *testing.T) {
				p := runCase(t, c, tool.GuardAsk, parallel)
				for n := 0; len(p.pendingCalls()) > 0; n++ {
					require.Less(t, n, 10)
					p.denyPendingCalls()
				}
				require.Equal(t, sortedCalls(c.Allowed), p.executedCalls(), "calls that were denied")
			})
		}
	}
}

// This test proves a part of guarantee S14.
func TestGuard_AllowsApprovedCalls(t *testing.T) {
	for _, c := range loadCorpus(t) {
		t.Run(c.Name, func(t *testing.T) {
			p := runCase(t, c, tool.GuardAsk, false)
			if !p.hasSession {
				return // there is no session to continue
			}
			for n := 0; len(p.pendingCalls()) > 0; n++ {
				require.Less(t, n, 10)
				p.approvePendingCalls()
			}
			require.Equal(t, sortedCalls(c.Blocked, c.Allowed), p.executedCalls())
		})
	}
}

// This test proves a part of guarantee S14.
func TestGuard_StrictDeniesWithoutAsking(t *testing.T) {
	for _, c := range loadCorpus(t) {
		t.Run(c.Name, func(t *testing.T) {
			p := runCase(t, c, tool.GuardStrict, false)
			require.Empty(t, p.pendingCalls())
			require.Equal(t, sortedCalls(c.Allowed), p.executedCalls())
			require.NotEmpty(t, p.blockedTools())
		})
	}
}
