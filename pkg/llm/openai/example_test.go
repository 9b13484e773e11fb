package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
)

// A local server needs no key.
func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := (openaitest.Wire{}).Stream(llmtest.Reply{Texts: []string{"Hello ", "from ", "here."}})
		for _, e := range append(s.Body, s.End...) {
			_, _ = w.Write(e)
		}
	}))
	defer server.Close()

	m, err := openai.New("local/llama3.2", openai.Config{BaseURL: server.URL + "/v1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for d, err := range m.Generate(context.Background(), llm.Request{Messages: []conversation.Message{conversation.User("Hi")}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(d.Text)
	}
	// Output: Hello from here.
}

func ExampleProviders() {
	models, err := llm.NewCatalog(openai.Providers()...)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(models.Prefixes())
	// Output: [co/ grok/ groq/ mistral/ openai/ openrouter/]
}

func ExampleCompatible() {
	models, err := llm.NewCatalog(openai.Compatible("vllm", "http://vllm.internal:8000/v1", "VLLM_API_KEY"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(models.Prefixes())
	// Output: [vllm/]
}
