package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noRetries is a Retry that sends each request once.
var noRetries = llm.Retry{Limit: -1}

// The suite runs once for each form in which servers send the reasoning of their models.
//
// Req: CO-11, CO-12, CO-13
func TestModel_PassesTheSuite(t *testing.T) {
	for _, form := range []openaitest.Form{
		openaitest.ReasoningContent, openaitest.ReasoningField, openaitest.ReasoningDetails, openaitest.ContentList, openaitest.ThinkTag,
	} {
		t.Run(string(form), func(t *testing.T) {
			llmtest.Run(t, llmtest.Provider{
				Name: openai.Prefix,
				Open: func(name, baseURL, key string, timeouts llm.Timeouts) (llm.Model, error) {
					return openai.New(name, openai.Config{Key: secret.New(key), BaseURL: baseURL + "/v1", Timeouts: timeouts, Retry: noRetries})
				},
				Wire: openaitest.Wire{Form: form},
			})
		})
	}
}
