package execute

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Req: CO-39c
func TestBoundedJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n-1) + "[1]" + strings.Repeat("}", n-1) }
	long := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for name, c := range map[string]struct {
		in, want string
	}{
		"an object":        {"{ \"a\": [1, 2.5e3, null, true, \"b\"] }\n", `{"a":[1,2.5e3,null,true,"b"]}`},
		"a number":         {"12345678901234567890", "12345678901234567890"},
		"eight levels":     {deep(8), deep(8)},
		"nine levels":      {deep(9), ""},
		"64 KiB":           {long(64 << 10), long(64 << 10)},
		"more than 64 KiB": {long(64<<10 + 1), ""},
		"not finite":       {`{"a":1e999}`, ""},
		"no number":        {`{"a":NaN}`, ""},
		"two values":       {`1 2`, ""},
		"nothing":          {"", ""},
		"half a value":     {`{"a":`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, string(boundedJSON(json.RawMessage(c.in))))
		})
	}
}

// The tool may change its value afterwards.
//
// Req: CO-39c
func TestBoundedJSON_IsDetached(t *testing.T) {
	value := json.RawMessage(`{"a":1}`)
	out := boundedJSON(value)
	value[5] = '2'
	require.JSONEq(t, `{"a":1}`, string(out))
}
