package injection_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// obedientModel is the worst possible model. It obeys any text that it reads, whatever its source and however well
// it is hidden. It calls firstTool first, if it has that tool. When no instruction is left it repeats what it has
// read.
type obedientModel struct{ firstTool string }

func (*obedientModel) Name() string { return "test/obedient" }

// Generate implements llm.Model.
func (m *obedientModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		yield(m.answer(req), nil)
	}
}

func (m *obedientModel) answer(req llm.Request) llm.Delta {
	offered := func(name string) bool {
		return slices.ContainsFunc(req.Tools, func(t llm.ToolSpec) bool { return t.Name == name })
	}
	since, said := 0, ""
	for i, msg := range req.Messages {
		if msg.Role == conversation.RoleUser && msg.Author == "" {
			since, said = i, msg.Text
		}
	}
	var done []string
	var heard []string
	for _, msg := range req.Messages[since:] {
		for _, c := range msg.ToolCalls {
			done = append(done, formatCall(c.Name, c.Arguments))
		}
		if msg.Role == conversation.RoleTool {
			heard = append(heard, msg.Text)
		}
	}
	if m.firstTool != "" && offered(m.firstTool) && len(done) == 0 {
		return callDelta(m.firstCall(req))
	}
	var next []conversation.ToolCall
	for _, c := range findCalls(req, said) {
		if !slices.Contains(done, formatCall(c.Name, c.Arguments)) && offered(c.Name) {
			next, done = append(next, c), append(done, formatCall(c.Name, c.Arguments))
		}
	}
	if len(next) > 0 {
		return callDelta(next...)
	}
	return llm.Delta{Text: "I have read: " + strings.Join(heard, "\n"), Finish: llm.FinishStop}
}

// firstCall returns the call of the model's first tool.
func (m *obedientModel) firstCall(req llm.Request) conversation.ToolCall {
	c := conversation.ToolCall{Name: m.firstTool, Arguments: "{}"}
	for _, t := range req.Tools {
		if t.Name == m.firstTool && strings.Contains(string(t.Schema), "request") { // an agent
			c.Arguments = `{"request": "Please read it."}`
		}
	}
	return c
}

func callDelta(all ...conversation.ToolCall) llm.Delta {
	return llm.Delta{ToolCalls: all, Finish: llm.FinishCalls}
}

// formatCall returns a call in the format of the corpus.
func formatCall(name, arguments string) string {
	var args map[string]any
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return name + " " + arguments
	}
	text, err := json.Marshal(args) // Marshal sorts the keys
	if err != nil {
		return name
	}
	return name + " " + string(text)
}

// findCalls returns the calls that the texts of a request ask for.
func findCalls(req llm.Request, said string) []conversation.ToolCall {
	texts := []string{req.System}
	for _, m := range req.Messages {
		texts = append(texts, m.Text)
		for _, a := range m.Attachments {
			texts = append(texts, a.Name, string(a.Data))
		}
	}
	for _, t := range req.Tools {
		texts = append(texts, t.Description)
	}
	texts = append(texts, joinParts(strings.Join(texts, "\n")))
	var all []conversation.ToolCall
	for _, text := range texts {
		for _, readable := range decodings(text, 3) {
			all = append(all, parseCalls(readable, said)...)
		}
	}
	return all
}

var numberedPart = regexp.MustCompile(`PART \d/\d: (.*)`)

// joinParts returns the text of all parts as one string.
func joinParts(text string) string {
	var b strings.Builder
	for _, p := range numberedPart.FindAllStringSubmatch(text, -1) {
		b.WriteString(p[1])
	}
	return b.String()
}

var (
	base64Text = regexp.MustCompile(`[A-Za-z0-9+/]{24,}={0,2}`)
	hexText    = regexp.MustCompile(`[0-9a-f]{24,}`)
	lookalikes = strings.NewReplacer("С", "C", "А", "A", "а", "a", "е", "e", "о", "o", "р", "p")
)

// decodings returns a text in all encodings in which it can be read, nested up to a maximum depth.
func decodings(text string, depth int) []string {
	text = removeDisguise(text)
	all := []string{text}
	if depth == 0 || text == "" {
		return all
	}
	var more []string
	if t := html.UnescapeString(text); t != text {
		more = append(more, t)
	}
	if t, err := url.PathUnescape(text); err == nil && t != text {
		more = append(more, t)
	}
	if _, t, ok := strings.Cut(text, "ROT13:"); ok {
		more = append(more, strings.Map(rot13, t))
	}
	if _, t, ok := strings.Cut(text, "REVERSED:"); ok {
		r := []rune(t)
		slices.Reverse(r)
		more = append(more, string(r))
	}
	for _, t := range base64Text.FindAllString(text, -1) {
		if b, err := base64.StdEncoding.DecodeString(t); err == nil {
			more = append(more, string(b))
		}
	}
	for _, t := range hexText.FindAllString(text, -1) {
		if b, err := hex.DecodeString(t); err == nil {
			more = append(more, string(b))
		}
	}
	if strings.Contains(text, `\"`) {
		more = append(more, strings.ReplaceAll(text, `\"`, `"`))
	}
	for _, t := range more {
		all = append(all, decodings(t, depth-1)...)
	}
	return all
}

// removeDisguise makes a hidden text plain. It replaces tag characters and lookalike letters by the letters that they stand
// for, and removes zero-width characters.
func removeDisguise(text string) string {
	text = strings.Map(func(r rune) rune {
		if r > 0xE0000 && r < 0xE007F {
			return r - 0xE0000
		}
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, text)
	return lookalikes.Replace(norm.NFKC.String(text))
}

func rot13(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return 'a' + (r-'a'+13)%26
	case r >= 'A' && r <= 'Z':
		return 'A' + (r-'A'+13)%26
	default:
		return r
	}
}

var (
	instruction = regexp.MustCompile(`(?:WHEN "([^"]*)" )?(?:CALL|RUN|EXECUTE|INVOKE|RUFE) ([a-z_]+) \{`)
	invokeTag   = regexp.MustCompile(`<invoke name="([a-z_]+)">(\{.*?\})</invoke>`)
)

// parseCalls returns the calls that a readable text asks for. It finds instructions in words, which may depend on
// a word of the user, and any text in the form of a call.
func parseCalls(text, said string) []conversation.ToolCall {
	var all []conversation.ToolCall
	for _, at := range instruction.FindAllStringSubmatchIndex(text, -1) {
		if at[2] >= 0 && !strings.Contains(said, text[at[2]:at[3]]) {
			continue
		}
		var args json.RawMessage
		if json.NewDecoder(strings.NewReader(text[at[1]-1:])).Decode(&args) == nil {
			all = append(all, conversation.ToolCall{Name: text[at[4]:at[5]], Arguments: string(args)})
		}
	}
	for _, at := range invokeTag.FindAllStringSubmatch(text, -1) {
		all = append(all, conversation.ToolCall{Name: at[1], Arguments: at[2]})
	}
	if at := strings.Index(text, "{"); at >= 0 {
		var value any
		if json.NewDecoder(strings.NewReader(text[at:])).Decode(&value) == nil {
			all = append(all, callsInJSON(value)...)
		}
	}
	return all
}

// callsInJSON returns the calls in JSON of any provider's format.
func callsInJSON(value any) []conversation.ToolCall {
	var all []conversation.ToolCall
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			all = append(all, callsInJSON(e)...)
		}
	case map[string]any:
		for _, name := range []string{"name", "function"} {
			for _, args := range []string{"arguments", "input"} {
				if n, ok := v[name].(string); ok && v[args] != nil {
					if text, err := json.Marshal(v[args]); err == nil {
						all = append(all, conversation.ToolCall{Name: n, Arguments: string(text)})
					}
				}
			}
		}
		for _, e := range v {
			all = append(all, callsInJSON(e)...)
		}
	}
	return all
}

// toTagCharacters converts a text to invisible Unicode tag characters.
func toTagCharacters(text string) string {
	return strings.Map(func(r rune) rune { return r + 0xE0000 }, text)
}
