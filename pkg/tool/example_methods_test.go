package tool_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/pkg/tool"
)

// library is the part of a larger type that agents may use.
type library struct{}

// Shelf is one of few.
type Shelf string

// Enum implements tool.Enum.
func (Shelf) Enum() []any { return []any{"fiction", "science"} }

// FindBook finds one.
func (library) FindBook(_ context.Context, in struct {
	Title string `json:"title" jsonschema:"a part of it is enough"`
	Shelf Shelf  `json:"shelf,omitempty"`
},
) (string, error) {
	return in.Title + " stands on the shelf " + string(in.Shelf), nil
}

func ExampleMethods() {
	tools, err := tool.Methods(library{}, map[string]string{"FindBook": "Finds a book by its title."})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tools[0].Spec().Name)
	result, _ := tools[0].Call(context.Background(), json.RawMessage(`{"title": "Emma", "shelf": "fiction"}`))
	fmt.Println(result.Text)
	_, err = tools[0].Call(context.Background(), json.RawMessage(`{"title": "Emma", "shelf": "cellar"}`))
	fmt.Println(err != nil)
	// Output:
	// find_book
	// Emma stands on the shelf fiction
	// true
}
