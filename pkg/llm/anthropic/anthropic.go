// Package anthropic provides Anthropic's models over the Messages API and the official SDK.
//
// The thoughts of a model before a tool call are sent back together with the call (CO-11). Requests mark the parts
// that the provider's prompt cache should store: the tools, the system prompt, and the rounds of a step.
package anthropic

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Prefix is the prefix of the models' names, without the slash.
const Prefix = "anthropic"

// The environment variables that Provider reads.
const (
	KeyVariable     = "ANTHROPIC_API_KEY"
	BaseURLVariable = "ANTHROPIC_BASE_URL"
)

const (
	baseURL   = "https://api.anthropic.com"
	maxTokens = 32_000 // all models of the fourth generation and later can write this many tokens
)

// Config holds the settings of a model. Zero values mean the defaults.
type Config struct {
	Key       secret.Value // required
	BaseURL   string       // default https://api.anthropic.com
	MaxTokens int64        // limit of the tokens in an answer (0 means 32000)
	Thinking  bool         // the model may think before it answers, and decides itself how much
	Timeouts  llm.Timeouts
	Retry     llm.Retry
	// Table holds the prices and context sizes of the models. The default is the built-in table. If BaseURL is
	// set, there is no default, because the prices of another server are unknown.
	Table llm.Table
}

// Provider returns the provider of models whose names begin with "anthropic/", or with claude and no prefix. It
// reads the key from ANTHROPIC_API_KEY and the address from ANTHROPIC_BASE_URL. Without a key, opening a model
// fails with an error that names the variable (CO-10).
func Provider() llm.Provider {
	return llm.Provider{Prefix: Prefix, BarePrefixes: []string{"claude"}, Open: func(name string) (llm.Model, error) {
		return New(name, Config{Key: secret.New(os.Getenv(KeyVariable)), BaseURL: os.Getenv(BaseURLVariable)})
	}}
}

// New returns the model with the given name, such as "anthropic/claude-sonnet-5". The prefix is optional. New does
// not connect to the provider. The model retries failed requests and reports costs: see llm.Retried and
// llm.Priced.
func New(name string, c Config) (llm.Model, error) {
	bare := strings.TrimPrefix(name, Prefix+"/")
	m := &model{
		source:          llm.Source{Provider: Prefix, Model: Prefix + "/" + bare, KeyVariable: KeyVariable, Key: c.Key},
		model:           bare,
		maxTokens:       cmp.Or(c.MaxTokens, maxTokens),
		thinkingEnabled: c.Thinking,
	}
	if c.Key.Reveal() == "" {
		return nil, m.source.NewMissingKeyError()
	}
	m.messages = sdk.NewMessageService(
		option.WithBaseURL(cmp.Or(c.BaseURL, baseURL)),
		option.WithAPIKey(c.Key.Reveal()),
		option.WithHTTPClient(llm.NewHTTPClient(c.Timeouts)),
		option.WithMaxRetries(0),
		option.WithMiddleware(m.checkResponse),
		option.WithoutOpenTelemetry(), // the mesh has its own tracing, and must not send trace ids to providers
	)
	return llm.Retried(llm.Priced(m, c.Table.ForBaseURL(c.BaseURL)), c.Retry), nil
}

// model is a model of the provider. It is safe for concurrent use.
type model struct {
	source          llm.Source
	messages        sdk.MessageService
	model           string // name without the prefix, as the provider knows it
	maxTokens       int64
	thinkingEnabled bool
}

// Name implements llm.Model.
func (m *model) Name() string { return m.source.Model }

// Generate implements llm.Model. It sends one request.
func (m *model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		stream := m.messages.NewStreaming(ctx, m.newRequest(req))
		defer stream.Close() //nolint:errcheck // what was to be read was read
		var r reply
		for !r.isComplete && stream.Next() {
			if said := r.applyEvent(stream.Current()); (said.Text != "" || said.Thought != "") && !yield(said, nil) {
				return
			}
		}
		end, err := m.lastDelta(ctx, &r, stream.Err())
		if (err == nil || end.Usage != execution.Usage{}) && !yield(end, nil) {
			return
		}
		if err != nil {
			yield(llm.Delta{}, err)
		}
	}
}

// stopReasons are the reasons of answers that are complete.
var stopReasons = []sdk.StopReason{sdk.StopReasonEndTurn, sdk.StopReasonStopSequence, sdk.StopReasonToolUse, sdk.StopReasonPauseTurn}

// lastDelta returns the last delta of a reply: its calls, its usage, and why it ended. For a failed reply it
// returns only the usage, and the error.
func (m *model) lastDelta(ctx context.Context, r *reply, broken error) (llm.Delta, error) {
	end := llm.Delta{Usage: r.usage()}
	switch {
	case !r.isComplete:
		return end, m.streamError(ctx, broken)
	case r.stopReason == sdk.StopReasonRefusal:
		return end, m.source.NewError(llm.ContentFiltered, errors.New(cmp.Or(r.stopDetails, "the provider does not say why")))
	case r.stopReason == sdk.StopReasonMaxTokens || r.stopReason == sdk.StopReasonModelContextWindowExceeded:
		end.Finish = llm.FinishLength
	case !slices.Contains(stopReasons, r.stopReason):
		end.Finish = llm.FinishOther
	case len(r.calls) > 0:
		end.Finish = llm.FinishCalls
	default:
		end.Finish = llm.FinishStop
	}
	end.ToolCalls = r.calls
	return end, nil
}
