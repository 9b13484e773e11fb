// Package gemini provides Google's models over the Gemini API and the official SDK.
//
// The signature of a model's thoughts before a tool call is sent back together with the call (CO-11). The provider
// caches the beginnings of requests automatically.
package gemini

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Prefix is the prefix of the models' names, without the slash.
const Prefix = "gemini"

// The environment variables that Provider reads.
const (
	KeyVariable      = "GEMINI_API_KEY"
	OtherKeyVariable = "GOOGLE_API_KEY" // used if KeyVariable is not set
	BaseURLVariable  = "GEMINI_BASE_URL"
)

const baseURL = "https://generativelanguage.googleapis.com"

// Config holds the settings of a model. Zero values mean the defaults.
type Config struct {
	Key       secret.Value // required
	BaseURL   string       // default https://generativelanguage.googleapis.com
	MaxTokens int32        // limit of the tokens in an answer, thoughts included (0 means the model's own limit)
	Timeouts  llm.Timeouts
	Retry     llm.Retry
	// Table holds the prices and context sizes of the models. The default is the built-in table. If BaseURL is
	// set, there is no default, because the prices of another server are unknown.
	Table llm.Table
}

// Provider returns the provider of models whose names begin with "gemini/", or with gemini and no prefix. It reads
// the key from GEMINI_API_KEY or GOOGLE_API_KEY, and the address from GEMINI_BASE_URL. Without a key, opening a
// model fails with an error that names the variable (CO-10).
func Provider() llm.Provider {
	return llm.Provider{Prefix: Prefix, BarePrefixes: []string{"gemini"}, Open: func(name string) (llm.Model, error) {
		key := cmp.Or(os.Getenv(KeyVariable), os.Getenv(OtherKeyVariable))
		return New(name, Config{Key: secret.New(key), BaseURL: os.Getenv(BaseURLVariable)})
	}}
}

// New returns the model with the given name, such as "gemini/gemini-3-pro". The prefix is optional. New does not
// connect to the provider. The model retries failed requests and reports costs: see llm.Retried and llm.Priced.
func New(name string, c Config) (llm.Model, error) {
	bare := strings.TrimPrefix(name, Prefix+"/")
	m := &model{
		source:    llm.Source{Provider: Prefix, Model: Prefix + "/" + bare, KeyVariable: KeyVariable, Key: c.Key},
		model:     bare,
		maxTokens: c.MaxTokens,
	}
	if c.Key.Reveal() == "" {
		return nil, m.source.NewMissingKeyError()
	}
	web := llm.NewHTTPClient(c.Timeouts)
	web.Transport = transport{web.Transport, m.source}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{ // NewClient sends no request
		Backend:     genai.BackendGeminiAPI,
		APIKey:      c.Key.Reveal(),
		HTTPClient:  web,
		HTTPOptions: genai.HTTPOptions{BaseURL: cmp.Or(c.BaseURL, baseURL)},
	})
	if err != nil { // the text of err may contain the key
		return nil, failure.Newf(failure.UserInvalidInput, "gemini.New", "model %s cannot be opened; check %s", name, BaseURLVariable)
	}
	m.models = client.Models
	return llm.Retried(llm.Priced(m, c.Table.ForBaseURL(c.BaseURL)), c.Retry), nil
}

// model is a model of the provider. It is safe for concurrent use.
type model struct {
	source    llm.Source
	models    *genai.Models
	model     string // name without the prefix, as the provider knows it
	maxTokens int32
}

// Name implements llm.Model.
func (m *model) Name() string { return m.source.Model }

// maxRepairs is how often Generate asks for a malformed call again.
const maxRepairs = 2

// repairNote asks for a malformed call again.
const repairNote = "(The tool call after this was malformed, and did not run. Send it again, with valid arguments.)"

// Generate implements llm.Model. It sends one request. If the reply has text but a malformed call, it asks
// again, at most maxRepairs times: the text was yielded already, so llm.Retried cannot repeat the request.
func (m *model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		contents, r := m.toContents(req.Messages), reply{earlierCalls: countCalls(req.Messages)}
		for repairs := 0; ; repairs++ {
			x := &exchange{}
			broken, stopped := m.readReply(x.newContext(ctx), req, contents, &r, yield)
			if stopped {
				return
			}
			if text := r.text.String(); r.isMalformed() && broken == nil && x.streamErr == nil && text != "" && repairs < maxRepairs {
				contents = append(contents, genai.NewContentFromText(text, genai.RoleModel), genai.NewContentFromText(repairNote, genai.RoleUser))
				r = reply{earlierCalls: r.earlierCalls, earlierUsage: r.usage()}
				continue
			}
			end, err := m.lastDelta(ctx, &r, x, broken)
			if (err == nil || end.Usage != execution.Usage{}) && !yield(end, nil) {
				return
			}
			if err != nil {
				yield(llm.Delta{}, err)
			}
			return
		}
	}
}

// readReply sends a request and yields the texts and thoughts of the reply. It returns the error that ended the reply,
// and whether the consumer has stopped.
func (m *model) readReply(
	ctx context.Context, req llm.Request, contents []*genai.Content, r *reply, yield func(llm.Delta, error) bool,
) (broken error, stopped bool) {
	for piece, err := range withoutPanics(m.models.GenerateContentStream(ctx, m.model, contents, m.newConfig(req))) {
		var said llm.Delta
		if err == nil {
			said, err = r.applyItem(piece)
		}
		if err != nil {
			return err, false
		}
		if (said.Text != "" || said.Thought != "") && !yield(said, nil) {
			return nil, true
		}
	}
	return nil, false
}

// filterReasons lists the finish reasons of answers that a content filter of the provider stopped.
var filterReasons = []genai.FinishReason{
	genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonLanguage, genai.FinishReasonBlocklist,
	genai.FinishReasonProhibitedContent, genai.FinishReasonSPII, genai.FinishReasonImageSafety,
	genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation,
}

// lastDelta returns the last delta of a reply: its calls, its usage, and why it ended. For a failed reply it
// returns only the usage, and the error.
func (m *model) lastDelta(ctx context.Context, r *reply, x *exchange, broken error) (llm.Delta, error) {
	end := llm.Delta{Usage: r.usage()}
	if broken != nil || x.streamErr != nil || r.finishReason == "" && r.blocked == "" {
		return end, m.streamError(ctx, x, broken)
	}
	switch r.finishReason {
	case genai.FinishReasonStop:
		end.Finish = llm.FinishStop
		if len(r.calls) > 0 {
			end.Finish = llm.FinishCalls
		}
	case genai.FinishReasonMaxTokens:
		end.Finish = llm.FinishLength
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall,
		genai.FinishReasonOther, genai.FinishReasonUnspecified: // the same request often succeeds when it is sent again
		return end, m.source.NewError(llm.Unavailable, errors.New(r.stopReason()))
	case genai.FinishReasonTooManyToolCalls:
		return end, m.source.NewError(llm.Malformed, errors.New(r.stopReason()))
	default:
		if r.blocked != "" || slices.Contains(filterReasons, r.finishReason) {
			return end, m.source.NewError(llm.ContentFiltered, errors.New(r.stopReason()))
		}
		end.Finish = llm.FinishOther
	}
	end.ToolCalls = r.calls
	return end, nil
}
