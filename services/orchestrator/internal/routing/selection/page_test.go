package selection

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pagePath is the path of the documentation about routing.
const pagePath = "../../../../../docs/routing.md"

// The decision shown in the documentation is what Decide returns for the input shown there.
func TestPage_ShowsADecisionThatDecideMakes(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	quoted := regexp.MustCompile("(?s)\n```json\n(.*?)```\n").FindSubmatch(text)
	require.Len(t, quoted, 2)
	decoder := json.NewDecoder(bytes.NewReader(quoted[1]))
	decoder.DisallowUnknownFields()
	var d Decision
	require.NoError(t, decoder.Decode(&d))
	require.JSONEq(t, encodeJSON(t, Decide(d.Input)), string(quoted[1]))
}

// The documentation lists every reason why an instance is excluded.
func TestPage_ListsEveryReason(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	table, _, _ := strings.Cut(string(text), "An instance has the last word")
	for why := Available + 1; why < availabilityCount; why++ {
		require.Contains(t, table, "`"+why.String()+"`")
	}
}
