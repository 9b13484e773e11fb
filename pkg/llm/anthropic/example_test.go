package anthropic_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Add Provider to a catalog, which finds models by their names.
func ExampleProvider() {
	catalog, err := llm.NewCatalog(anthropic.Provider())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(catalog.Prefixes())
	// Output: [anthropic/]
}

// A model streams its answer. A local server replaces the provider.
func ExampleNew() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "testdata/text.sse")
	}))
	defer provider.Close()

	model, err := anthropic.New("anthropic/claude-sonnet-5", anthropic.Config{Key: secret.New("…"), BaseURL: provider.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	req := llm.Request{System: "Be brief.", Messages: []conversation.Message{conversation.User("Hi!")}}
	for delta, err := range model.Generate(context.Background(), req) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(delta.Text)
		if delta.Finish != "" {
			fmt.Printf(" (%s, %d tokens)\n", delta.Finish, delta.Usage.OutputTokens)
		}
	}
	// Output: Hello, wörld! <3 (stop, 15 tokens)
}
