package llm_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// printAnswer prints the answer of a model.
func printAnswer(m llm.Model) string {
	var text, by string
	for d, err := range m.Generate(context.Background(), llm.Request{}) {
		if err != nil {
			return failure.PlainMessage(err)
		}
		text += d.Text
		by += d.Model
	}
	return fmt.Sprintf("%s %s %q", m.Name(), by, text)
}

func ExampleNewCatalog() {
	models, err := llm.NewCatalog(extractive.Provider(), scripted.New().Provider())
	if err != nil {
		fmt.Println(err)
		return
	}
	m, _ := models.Model("builtin/extractive")
	fmt.Println(m.Name())
	_, err = models.Model("unknown/large")
	fmt.Println(failure.PlainMessage(err))
	// Output:
	// builtin/extractive
	// model "unknown/large": no provider has the prefix "unknown"; there are builtin/, scripted/
}

func ExampleFailover() {
	openai := llm.Source{Provider: "openai", Model: "openai/gpt-5"}
	down := scripted.New(scripted.Fail(openai.NewError(llm.Unavailable, nil)))
	local := scripted.New(scripted.Say("still here"))
	m, err := llm.Failover("chain/main", down, local)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(printAnswer(m))
	// Output: chain/main scripted/model "still here"
}

func ExampleHedged() {
	slow := scripted.New(scripted.Reply{Deltas: []string{"too late"}, Wait: make(chan struct{})})
	quick := scripted.New(scripted.Say("here"))
	fmt.Println(printAnswer(llm.Hedged(slow, quick, time.Millisecond)))
	// Output: scripted/model  "here"
}

func ExampleRetried() {
	openai := llm.Source{Provider: "openai", Model: "openai/gpt-5"}
	m := scripted.New(scripted.Fail(openai.NewError(llm.Connection, nil)), scripted.Say("back again"))
	fmt.Println(printAnswer(llm.Retried(m, llm.Retry{Pause: time.Millisecond})))
	// Output: scripted/model  "back again"
}

func ExampleKindOf() {
	openai := llm.Source{Provider: "openai", Model: "openai/gpt-5", KeyVariable: "OPENAI_API_KEY"}
	err := openai.NewResponseError(429, map[string][]string{"Retry-After": {"7"}}, "", "Rate limit reached for requests per min")
	fmt.Println(failure.PlainMessage(err))
	fmt.Println(llm.KindOf(err), llm.KindOf(err).Retryable())
	e, _ := errors.AsType[*llm.Error](err)
	fmt.Println(e)
	// Output:
	// openai gets too many requests for model openai/gpt-5; try again in 7s
	// rate_limit true
	// openai: rate_limit (429): Rate limit reached for requests per min
}

func ExampleTable_Find() {
	known, _ := llm.BuiltinTable().Find("openai/gpt-5-mini-2025-08-07")
	micros := known.Cost(execution.Usage{InputTokens: 10_000, CachedTokens: 8_000, OutputTokens: 500})
	fmt.Printf("reads %d tokens; this costs $%.6f\n", known.ContextSize, float64(micros)/1e6)
	// Output: reads 400000 tokens; this costs $0.001700
}
