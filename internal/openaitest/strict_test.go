package openaitest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/openaitest"
)

func TestCheckMessages_RejectsWhatTheAPIRejects(t *testing.T) {
	const calls = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},` +
		`{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}`
	const a, b, user = `{"role":"tool","content":"","tool_call_id":"a"}`, `{"role":"tool","content":"","tool_call_id":"b"}`, `{"role":"user","content":"x"}`
	require.NoError(t, openaitest.CheckMessages([]byte("["+user+","+calls+","+a+","+b+","+user+"]")))
	for name, messages := range map[string]string{
		"none":                    "",
		"a result too few":        user + "," + calls + "," + a,
		"a message in between":    user + "," + calls + "," + a + "," + user + "," + b,
		"another order":           user + "," + calls + "," + b + "," + a,
		"a result twice":          user + "," + calls + "," + a + "," + b + "," + b,
		"a result without a call": user + "," + a,
		"an unknown role":         `{"role":"summary","content":"x"}`,
		"an unknown field":        `{"role":"user","content":"x","author":"y"}`,
		"no content":              `{"role":"user"}`,
		"a name with a space":     `{"role":"user","content":"x","name":"a b"}`,
		"a call of a user":        `{"role":"user","content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},` + a,
		"a call without a type":   `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},` + a,
		"a dot in a function":     `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f.g","arguments":"{}"}}]},` + a,
	} {
		require.Error(t, openaitest.CheckMessages([]byte("["+messages+"]")), name)
	}
}
