package llm_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// shouting is a model of one's own: it says in capitals what it was told last.
type shouting struct{}

func (shouting) Name() string { return "example/shouting" }

func (shouting) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		for word := range strings.FieldsSeq(req.Messages[len(req.Messages)-1].Text) {
			if !yield(llm.Delta{Text: strings.ToUpper(word)}, nil) {
				return
			}
		}
	}
}

// A model streams what it says. Who stops reading ends it.
func ExampleModel() {
	req := llm.Request{Messages: []conversation.Message{conversation.User("good morning")}}
	for delta, err := range (shouting{}).Generate(context.Background(), req) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		fmt.Fprintln(os.Stdout, delta.Text)
	}
	// Output:
	// GOOD
	// MORNING
}

// A catalog opens models by their names.
func ExampleNewCatalog() {
	models, err := llm.NewCatalog(llm.Provider{Prefix: "example", Open: func(string) (llm.Model, error) { return shouting{}, nil }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	model, err := models.Model("example/shouting")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, model.Name(), models.Prefixes())
	_, err = models.Model("other/model")
	fmt.Fprintln(os.Stdout, err)
	// Output:
	// example/shouting [example/]
	// llm.Model: user_invalid_input: model "other/model": no provider has the prefix "other"; there are example/
}
