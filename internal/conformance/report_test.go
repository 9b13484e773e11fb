package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func sampleReport() Report {
	return Report{Address: "127.0.0.1:7402", Duration: 1234 * time.Millisecond, Results: []Result{
		{Check: Check{ID: "pause/waits", Requirement: "LC-4", Title: "Pause waits."}, Duration: 12 * time.Millisecond},
		{Check: Check{ID: "pause/ends", Requirement: "LC-2", Title: "Pause ends."}, Duration: time.Second, Reason: `state: expected "a<b", actual READY`},
		{Check: Check{ID: "step/ends", Requirement: "StepResult", Title: "A step ends."}, Duration: 1500 * time.Millisecond, FirstReason: "too late"},
	}}
}

func TestReport_Table(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, sampleReport().WriteTable(&out, false))
	require.Empty(t, cmp.Diff(`
pause
  ✓ pause/waits  LC-4          12ms
  ✗ pause/ends   LC-2            1s
      Pause ends.
      state: expected "a<b", actual READY

step
  ✓ step/ends    StepResult    1.5s
      passed when it was repeated alone; before: too late

1 of 3 checks failed in 1.2s at 127.0.0.1:7402.
`, out.String()))

	passing := sampleReport()
	passing.Results = passing.Results[:1]
	out.Reset()
	require.NoError(t, passing.WriteTable(&out, true))
	require.Contains(t, out.String(), "\x1b[32m✓\x1b[0m pause/waits")
	require.Contains(t, out.String(), "All 1 checks passed")
}

func TestReport_JSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, sampleReport().WriteJSON(&out))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.EqualValues(t, 1, got["failed"])
	require.EqualValues(t, 2, got["passed"])
	require.Equal(t, map[string]any{
		"id": "pause/ends", "area": "pause", "requirement": "LC-2", "title": "Pause ends.", "passed": false, "seconds": 1.0,
		"reason": `state: expected "a<b", actual READY`,
	}, got["checks"].([]any)[1])
}

func TestReport_JUnit(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, sampleReport().WriteJUnit(&out))
	var got junitSuites
	require.NoError(t, xml.Unmarshal(out.Bytes(), &got))
	require.Len(t, got.Suites, 2)
	require.Equal(t, 2, got.Suites[0].Tests)
	require.Equal(t, 1, got.Suites[0].Failures)
	require.Equal(t, `state: expected "a<b", actual READY`, got.Suites[0].Cases[1].Failure.Message)
	require.Nil(t, got.Suites[1].Cases[0].Failure)
}
