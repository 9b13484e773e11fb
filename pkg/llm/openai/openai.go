// Package openai provides the models of OpenAI, and of every provider and server with its Chat Completions API. It
// encodes and decodes only the few fields that it needs, so that servers with missing or additional fields work,
// too. docs/adr/0039 says why it does not use the official SDK.
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

// Prefix is the prefix of OpenAI's own models, before the slash.
const Prefix = "openai"

// The environment variables that Provider reads. The variables of other providers are named alike.
const (
	KeyVariable     = "OPENAI_API_KEY"
	BaseURLVariable = "OPENAI_BASE_URL"
)

// Config says how a provider is reached. Zero values mean the defaults.
type Config struct {
	Key     secret.Value // may be left out when there is a BaseURL: local servers need none
	BaseURL string       // of any compatible server, with its version, such as http://localhost:11434/v1; default OpenAI's own
	Bounds  llm.Bounds
	Retry   llm.Retry
	// Table has the prices and context sizes of the models (the default is the built-in table, or none if BaseURL
	// is set, because the prices of another server are unknown).
	Table llm.Table
	// PlainStream omits stream_options, for servers that reject the field. These report their usage anyway, or
	// never.
	PlainStream bool
}

// Provider opens models under "openai/", and under bare names that begin with gpt, o1, o3 or o4 (CO-10). It reads
// the key from OPENAI_API_KEY and the address from OPENAI_BASE_URL. Without both, opening a model fails with an
// error that names the variable.
func Provider() llm.Provider { return own.provider() }

// Compatible opens models of another server under its own prefix. It reads the key from the given environment
// variable. It reads the address from the variable with the same name and BASE_URL instead of API_KEY, if that is
// set.
func Compatible(prefix, baseURL, keyVariable string) llm.Provider {
	return server{prefix: prefix, baseURL: baseURL, key: keyVariable}.provider()
}

// Providers returns all providers that this package knows: OpenAI, groq, openrouter, mistral, grok, and co, the
// managed gateway (CO-10).
func Providers() []llm.Provider {
	all := []llm.Provider{Provider()}
	for _, s := range others {
		all = append(all, s.provider())
	}
	return all
}

// server is a provider of the models of one prefix.
type server struct {
	prefix, baseURL, key string
	bare                 []string
	plain                bool // see Config.PlainStream
}

var (
	own    = server{prefix: Prefix, baseURL: "https://api.openai.com/v1", key: KeyVariable, bare: []string{"gpt", "o1", "o3", "o4"}}
	others = []server{
		{prefix: "groq", baseURL: "https://api.groq.com/openai/v1", key: "GROQ_API_KEY"},
		{prefix: "openrouter", baseURL: "https://openrouter.ai/api/v1", key: "OPENROUTER_API_KEY"},
		{prefix: "mistral", baseURL: "https://api.mistral.ai/v1", key: "MISTRAL_API_KEY", plain: true},
		{prefix: "grok", baseURL: "https://api.x.ai/v1", key: "XAI_API_KEY"},
		{prefix: "co", baseURL: "https://oo.openonion.ai/v1", key: "OPENONION_API_KEY"},
	}
)

// provider opens models with the settings of the environment.
func (s server) provider() llm.Provider {
	return llm.Provider{Prefix: s.prefix, Bare: s.bare, Open: func(name string) (llm.Model, error) {
		return s.open(name, Config{
			Key:     secret.New(os.Getenv(s.key)),
			BaseURL: os.Getenv(strings.TrimSuffix(s.key, "_API_KEY") + "_BASE_URL"),
		})
	}}
}

// New returns the model with the given name, such as "openai/gpt-5-mini". The part before the first slash selects
// the provider, and is not sent. It is one of Providers, or any other prefix if BaseURL is set. New sends nothing.
// The model retries and knows its prices: see llm.Retried and llm.Priced.
func New(name string, c Config) (llm.Model, error) {
	prefix, _, slash := strings.Cut(name, "/")
	if !slash || prefix == Prefix {
		return own.open(name, c)
	}
	for _, s := range others {
		if s.prefix == prefix {
			return s.open(name, c)
		}
	}
	if c.BaseURL == "" {
		return nil, failure.Newf(failure.UserInvalidInput, "openai.New", "model %q: where %s/ is is not known; give its BaseURL", name, prefix)
	}
	return server{prefix: prefix}.open(name, c)
}

func (s server) open(name string, c Config) (llm.Model, error) {
	bare := strings.TrimPrefix(name, s.prefix+"/")
	m := &model{
		source: llm.Source{Provider: s.prefix, Model: s.prefix + "/" + bare, Variable: s.key, Key: c.Key},
		model:  bare,
		plain:  c.PlainStream || s.plain,
	}
	if c.Key.Reveal() == "" && c.BaseURL == "" {
		return nil, m.source.MissingKey()
	}
	base, err := url.Parse(cmp.Or(c.BaseURL, s.baseURL))
	if err != nil || base.Host == "" {
		return nil, failure.Newf(failure.UserInvalidInput, "openai.New",
			"model %s: %q is no base URL; want one such as http://localhost:11434/v1", m.source.Model, c.BaseURL)
	}
	m.url, m.client = base.JoinPath("chat", "completions").String(), llm.NewHTTPClient(c.Bounds)
	table := c.Table.At(c.BaseURL)
	known, _ := table.Find(m.source.Model)
	m.fixed = known.Fixed
	return llm.Retried(llm.Priced(m, table), c.Retry), nil
}

// model is a model of the provider. It is safe for concurrent use.
type model struct {
	source llm.Source
	client *http.Client
	url    string
	model  string // as the provider knows it
	plain  bool
	fixed  bool // its temperature cannot be set
}

// Name implements llm.Model.
func (m *model) Name() string { return m.source.Model }

// Generate implements llm.Model. It sends one request.
func (m *model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		out, err := m.httpRequest(ctx, req)
		if err != nil {
			yield(llm.Delta{}, m.source.Fail(llm.BadRequest, err))
			return
		}
		res, err := m.client.Do(out)
		if err != nil {
			yield(llm.Delta{}, m.source.Broken(ctx, err))
			return
		}
		if res.StatusCode >= http.StatusBadRequest {
			yield(llm.Delta{}, m.responseError(res))
			return
		}
		defer res.Body.Close() //nolint:errcheck // what was to be read was read
		m.read(ctx, res, yield)
	}
}
