package list_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/mutants/internal/list"
)

const valid = `
- id: LC-12
  clause: the start ends at its timeout
  file: internal/lifecycle/start.go
  find: a
  replace: b
  test: internal/lifecycle TestStart_EndsAtItsTimeout
`

func TestRead_NamesTheMutationAtFault(t *testing.T) {
	read := func(text string) error {
		_, err := list.Read(fstest.MapFS{"LC.yaml": {Data: []byte(text)}})
		return err
	}
	require.NoError(t, read(valid))
	require.NoError(t, read("# nothing yet\n"))
	for problem, text := range map[string]string{
		"not found in type":   "- wrong: x\n",
		"id is not the id":    "- id: X-1\n",
		"clause is missing":   "- id: LC-1\n",
		"file is not a path":  "- {id: LC-1, clause: c, file: ../x}\n",
		"file is a test":      "- {id: LC-1, clause: c, file: x_test.go}\n",
		"must differ":         "- {id: LC-1, clause: c, file: x.go, find: a, replace: a}\n",
		"replace panics":      "- {id: LC-1, clause: c, file: x.go, find: a, replace: panic(1)}\n",
		"test is not":         "- {id: LC-1, clause: c, file: x.go, find: a, replace: b, test: TestX}\n",
		"is also in LC.yaml":  valid + valid,
		"LC.yaml: mutation 1": "- id: LC-1\n",
	} {
		require.ErrorContains(t, read(text), problem, text)
	}
}

func TestSelect_TakesIDsAndPrefixes(t *testing.T) {
	all := []list.Mutation{{ID: "LC-1"}, {ID: "LC-2"}, {ID: "C-1"}}
	require.Len(t, list.Select(all, nil), 3)
	require.Equal(t, []list.Mutation{{ID: "LC-2"}}, list.Select(all, []string{"LC-2"}))
	require.Equal(t, []list.Mutation{{ID: "LC-1"}, {ID: "LC-2"}}, list.Select(all, []string{"LC"}))
	require.Equal(t, []list.Mutation{{ID: "C-1"}}, list.Select(all, []string{"C"}))
}
