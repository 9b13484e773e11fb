package openai

import (
	"encoding/json"
	"maps"
	"strings"
)

// details are the reasoning of a model in the form of OpenRouter, which expects them back unchanged and in order.
// They may contain signatures and encrypted texts.
type details []map[string]any

// UnmarshalJSON implements json.Unmarshaler. It ignores a value that is not a list of objects.
func (d *details) UnmarshalJSON(data []byte) error {
	var all []map[string]any
	if json.Unmarshal(data, &all) == nil {
		*d = all
	}
	return nil
}

// text returns the readable text of the details.
func (d details) text() string {
	var text strings.Builder
	for _, piece := range d {
		for _, field := range []string{"text", "summary"} {
			s, _ := piece[field].(string)
			text.WriteString(s)
		}
	}
	return text.String()
}

// add adds the pieces of the next event. Pieces of the same type and index form one detail: their texts are joined,
// and of their other fields the latest value counts.
func (d details) add(pieces details) details {
	for _, piece := range pieces {
		last := len(d) - 1
		if last < 0 || d[last]["type"] != piece["type"] || d[last]["index"] != piece["index"] || d[last]["id"] != nil && piece["id"] != nil {
			d = append(d, maps.Clone(piece))
			continue
		}
		for field, value := range piece {
			before, _ := d[last][field].(string)
			if s, ok := value.(string); ok && (field == "text" || field == "summary" || field == "data") {
				value = before + s
			}
			if value != nil && (value != "" || before == "") {
				d[last][field] = value
			}
		}
	}
	return d
}
