package execute

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// The limits of a structured result (CO-39c).
const (
	maxStructuredBytes = 64 << 10
	maxStructuredDepth = 8
)

// boundedJSON returns a copy of the JSON in its shortest form. It returns nil if it is no JSON value, if it exceeds a
// limit, or if it contains a number that is not finite as a float64.
func boundedJSON(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, value) != nil || out.Len() > maxStructuredBytes {
		return nil
	}
	read := json.NewDecoder(bytes.NewReader(out.Bytes()))
	read.UseNumber()
	for depth := 0; ; {
		token, err := read.Token()
		if errors.Is(err, io.EOF) {
			return out.Bytes()
		}
		if err != nil {
			return nil
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
			} else {
				depth--
			}
		case json.Number:
			if _, err := strconv.ParseFloat(string(token), 64); err != nil {
				return nil
			}
		}
		if depth > maxStructuredDepth {
			return nil
		}
	}
}
