// Package lookup is a tool.
package lookup

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Place is the input of the tool.
type Place struct {
	City string `json:"city" jsonschema:"name of the city"`
}

// New returns a tool that looks up the weather of a city.
func New() (tool.Tool, error) {
	return tool.Func("weather", "Tells the weather of a city.", func(_ context.Context, in Place) (string, error) {
		if in.City == "" {
			return "", failure.New(failure.UserInvalidInput, "weather", "city is empty; name one")
		}
		return in.City + ": sunny", nil
	})
}
