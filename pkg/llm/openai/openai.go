// Package openai asks the models of OpenAI, and of every provider and server that speaks its Chat Completions
// format. It encodes and decodes only the few fields that matter, so that servers which leave fields out or add
// their own work too. docs/adr/0039 says why it does without the official SDK.
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

// Prefix is what the names of OpenAI's own models begin with, before a slash.
const Prefix = "openai"

// The environment variables that Provider reads. The other providers' are named alike.
const (
	KeyVariable     = "OPENAI_API_KEY"
	BaseURLVariable = "OPENAI_BASE_URL"
)

// Config is how a provider is reached. Zero values stand for the defaults.
type Config struct {
	Key     secret.Value // may be left out when there is a BaseURL: local servers need none
	BaseURL string       // of any compatible server, with its version, such as http://localhost:11434/v1; default OpenAI's own
	Bounds  llm.Bounds
	Retry   llm.Retry
	// Table has the prices and the sizes of the models; default the built-in one, and none
	// when there is a BaseURL: what another server asks for a name is not known.
	Table llm.Table
	// PlainStream leaves stream_options out of requests, for servers that refuse it. They
	// tell usage unasked, or never.
	PlainStream bool
}

// Provider opens models under "openai/", and under the bare names gpt…, o1…, o3…, o4… (CO-10),
// with what the environment says: the key of OPENAI_API_KEY, and the address of
// OPENAI_BASE_URL if there is one. Without both, opening a model is an error that names the
// variable.
func Provider() llm.Provider { return own.provider() }

// Compatible opens models of another server under its own prefix: the key comes from the
// given environment variable, and the address too if the variable that is named like it,
// with BASE_URL in place of API_KEY, is set.
func Compatible(prefix, baseURL, keyVariable string) llm.Provider {
	return server{prefix: prefix, baseURL: baseURL, key: keyVariable}.provider()
}

// Providers are all that this package knows by name: OpenAI itself, groq, openrouter,
// mistral, grok, and co, the managed gateway (CO-10).
func Providers() []llm.Provider {
	all := []llm.Provider{Provider()}
	for _, s := range others {
		all = append(all, s.provider())
	}
	return all
}

// server is where models of one prefix are.
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

// provider opens models with what the environment says.
func (s server) provider() llm.Provider {
	return llm.Provider{Prefix: s.prefix, Bare: s.bare, Open: func(name string) (llm.Model, error) {
		return s.open(name, Config{
			Key:     secret.New(os.Getenv(s.key)),
			BaseURL: os.Getenv(strings.TrimSuffix(s.key, "_API_KEY") + "_BASE_URL"),
		})
	}}
}

// New returns the model of the given name, such as "openai/gpt-5-mini". What stands before
// the first slash says whose it is, and is not sent: one of Providers, or any other, which
// needs a BaseURL. Nothing is sent before the model is asked. It retries, and knows its
// prices: see llm.Retried and llm.Priced.
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

// Generate implements llm.Model. It asks once.
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
			yield(llm.Delta{}, m.refusal(res))
			return
		}
		defer res.Body.Close() //nolint:errcheck // what was to be read was read
		m.read(ctx, res, yield)
	}
}
