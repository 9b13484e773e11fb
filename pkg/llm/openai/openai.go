// Package openai provides the models of OpenAI, and of every provider and server that has its Chat Completions
// API. It encodes and decodes only the few fields that it needs, so that it also works with servers that omit or
// add fields. docs/adr/0039 says why it does not use the official SDK.
package openai

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Prefix is the prefix of OpenAI's own models, without the slash.
const Prefix = "openai"

// The environment variables that Provider reads. The variables of other providers have names of the same form.
const (
	KeyVariable     = "OPENAI_API_KEY"
	BaseURLVariable = "OPENAI_BASE_URL"
)

// Config holds the settings of a model. Zero values mean the defaults.
type Config struct {
	Key      secret.Value // may be empty if BaseURL is set, because local servers need no key
	BaseURL  string       // of any compatible server, with the API version, such as http://localhost:11434/v1 (empty means OpenAI's own)
	Timeouts llm.Timeouts
	Retry    llm.Retry
	// Table holds the prices and context sizes of the models. The default is the built-in table. If BaseURL is
	// set, there is no default, because the prices of another server are unknown.
	Table llm.Table
	// PlainStream omits stream_options from requests, for servers that reject the field. Such servers report their
	// usage without it, or not at all.
	PlainStream bool
}

// Provider returns the provider of models whose names begin with "openai/", or with gpt, o1, o3 or o4 and no
// prefix (CO-10). It reads the key from OPENAI_API_KEY and the address from OPENAI_BASE_URL. Without both, opening
// a model fails with an error that names the variable.
func Provider() llm.Provider { return ownServer.provider() }

// Compatible returns the provider of models of another server, under its own prefix. It reads the key from the
// environment variable keyVariable. If the variable with BASE_URL in place of API_KEY is set, it contains the
// address.
func Compatible(prefix, baseURL, keyVariable string) llm.Provider {
	return server{prefix: prefix, baseURL: baseURL, keyVariable: keyVariable}.provider()
}

// Providers returns all providers that this package knows (CO-10): OpenAI, groq, openrouter, mistral, grok and co,
// which is the managed gateway.
func Providers() []llm.Provider {
	all := []llm.Provider{Provider()}
	for _, s := range otherServers {
		all = append(all, s.provider())
	}
	return all
}

// server holds the settings of one provider.
type server struct {
	prefix, baseURL, keyVariable string
	barePrefixes                 []string
	plainStream                  bool // see Config.PlainStream
	strictOrder                  bool // rejects a message of the user right after a tool result
}

var (
	ownServer    = server{prefix: Prefix, baseURL: "https://api.openai.com/v1", keyVariable: KeyVariable, barePrefixes: []string{"gpt", "o1", "o3", "o4"}}
	otherServers = []server{
		{prefix: "groq", baseURL: "https://api.groq.com/openai/v1", keyVariable: "GROQ_API_KEY"},
		{prefix: "openrouter", baseURL: "https://openrouter.ai/api/v1", keyVariable: "OPENROUTER_API_KEY"},
		{prefix: "mistral", baseURL: "https://api.mistral.ai/v1", keyVariable: "MISTRAL_API_KEY", plainStream: true, strictOrder: true},
		{prefix: "grok", baseURL: "https://api.x.ai/v1", keyVariable: "XAI_API_KEY"},
		{prefix: "co", baseURL: "https://oo.openonion.ai/v1", keyVariable: "OPENONION_API_KEY"},
	}
)

// provider returns the llm.Provider that opens models with the settings in the environment.
func (s server) provider() llm.Provider {
	return llm.Provider{Prefix: s.prefix, BarePrefixes: s.barePrefixes, Open: func(name string) (llm.Model, error) {
		return s.open(name, Config{
			Key:     secret.New(os.Getenv(s.keyVariable)),
			BaseURL: os.Getenv(strings.TrimSuffix(s.keyVariable, "_API_KEY") + "_BASE_URL"),
		})
	}}
}

// New returns the model with the given name, such as "openai/gpt-5-mini". The part before the first slash selects
// the provider and is not sent. It is the prefix of one of Providers, or any other prefix if BaseURL is set. New
// does not connect to the provider. The model retries failed requests and reports costs: see llm.Retried and
// llm.Priced.
func New(name string, c Config) (llm.Model, error) {
	prefix, _, slash := strings.Cut(name, "/")
	if !slash || prefix == Prefix {
		return ownServer.open(name, c)
	}
	for _, s := range otherServers {
		if s.prefix == prefix {
			return s.open(name, c)
		}
	}
	if c.BaseURL == "" {
		return nil, failure.Newf(failure.UserInvalidInput, "openai.New", "model %q: the address of %s/ is unknown; give its BaseURL", name, prefix)
	}
	return server{prefix: prefix}.open(name, c)
}

func (s server) open(name string, c Config) (llm.Model, error) {
	bare := strings.TrimPrefix(name, s.prefix+"/")
	m := &model{
		source:      llm.Source{Provider: s.prefix, Model: s.prefix + "/" + bare, KeyVariable: s.keyVariable, Key: c.Key},
		model:       bare,
		plainStream: c.PlainStream || s.plainStream,
		strictOrder: s.strictOrder,
	}
	if c.Key.Reveal() == "" && c.BaseURL == "" {
		return nil, m.source.NewMissingKeyError()
	}
	base, err := url.Parse(cmp.Or(c.BaseURL, s.baseURL))
	if err != nil || base.Host == "" {
		return nil, failure.Newf(failure.UserInvalidInput, "openai.New",
			"model %s: %q is no base URL; want one such as http://localhost:11434/v1", m.source.Model, c.BaseURL)
	}
	m.url, m.client = base.JoinPath("chat", "completions").String(), llm.NewHTTPClient(c.Timeouts)
	table := c.Table.ForBaseURL(c.BaseURL)
	known, _ := table.Find(m.source.Model)
	m.fixedTemperature = known.FixedTemperature
	return llm.Retried(llm.Priced(m, table), c.Retry), nil
}

// model is a model of the provider. It is safe for concurrent use.
type model struct {
	source           llm.Source
	client           *http.Client
	url              string
	model            string // name without the prefix, as the provider knows it
	plainStream      bool
	strictOrder      bool
	fixedTemperature bool // the provider rejects a temperature for this model
}

// Name implements llm.Model.
func (m *model) Name() string { return m.source.Model }

// Generate implements llm.Model. It sends one request.
func (m *model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		out, err := m.newHTTPRequest(ctx, req)
		if err != nil {
			yield(llm.Delta{}, m.source.NewError(llm.BadRequest, err))
			return
		}
		res, err := m.client.Do(out)
		if err != nil {
			yield(llm.Delta{}, m.source.NewConnectionError(ctx, err))
			return
		}
		if res.StatusCode >= http.StatusBadRequest {
			yield(llm.Delta{}, m.responseError(res))
			return
		}
		defer res.Body.Close() //nolint:errcheck // what was to be read was read
		m.readResponse(ctx, res, yield)
	}
}
