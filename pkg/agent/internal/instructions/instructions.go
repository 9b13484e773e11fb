// Package instructions reads the system prompt of an agent and fills in its placeholders.
package instructions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Instructions are a system prompt, which may have placeholders for values of the session.
type Instructions struct {
	text            string
	hasPlaceholders bool
}

// Text returns the prompt as the author wrote it.
func (in Instructions) Text() string { return in.text }

// placeholder matches {key}, {key?}, {artifact.name} and {session.history}, also between double braces. Other
// braces, such as in JSON, are text.
var placeholder = regexp.MustCompile(`\{\{[A-Za-z_][A-Za-z0-9_:.-]*\??\}\}|\{([A-Za-z_][A-Za-z0-9_:.-]*)(\??)\}`)

// historyKey is the placeholder for the conversation so far (RA-22). It takes precedence over a state key of the
// same name.
const historyKey = "session.history"

// Source holds the instructions of an agent, or the place to read them from.
type Source struct {
	Agent   string
	Text    string      // the instructions, or the path of a file
	From    string      // a file or a folder (empty means that Text is used)
	Default string      // used if Text and From are empty
	Log     *zap.Logger // for warnings
}

// Load reads the instructions (CO-2, CO-3).
func Load(s Source) (Instructions, error) {
	text, err := s.read()
	return Instructions{text: text, hasPlaceholders: placeholder.MatchString(text)}, err
}

func (s Source) read() (string, error) {
	switch {
	case s.From != "":
		return readFileOrFolder(s.From)
	case s.Text == "":
		return s.Default, nil
	case strings.ContainsAny(s.Text, "\n\x00") || len(s.Text) > maxPathBytes:
		return s.Text, nil // the text is not a path
	}
	switch info, err := os.Stat(s.Text); {
	case err == nil && !info.IsDir():
		return readFileOrFolder(s.Text)
	case err == nil:
		s.Log.Warn("the instructions are the name of a folder and are used as text; use InstructionsFrom to read the folder",
			zap.String("agent", s.Agent), zap.String("instructions", s.Text))
	case looksLikePath(s.Text):
		s.Log.Warn("the instructions look like the name of a file, but there is no such file; they are used as text",
			zap.String("agent", s.Agent), zap.String("instructions", s.Text))
	}
	return s.Text, nil
}

// maxPathBytes is the longest path that common systems allow, in bytes.
const maxPathBytes = 4096

// looksLikePath reports whether a text is one word that contains a folder or ends in a file extension, such as
// "prompt.md".
func looksLikePath(text string) bool {
	return !strings.ContainsAny(text, " \t{") && (len(filepath.Ext(text)) > 1 || strings.ContainsRune(text, filepath.Separator))
}

// readFileOrFolder reads a file, or joins the texts of a folder in the order of their names.
func readFileOrFolder(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", newUnreadableError(path, err)
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = textFiles(path); err != nil {
			return "", newUnreadableError(path, err)
		}
	}
	var texts []string
	for _, name := range names {
		text, err := os.ReadFile(name) //nolint:gosec // the author of the agent names it
		switch {
		case err != nil:
			return "", newUnreadableError(name, err)
		case !utf8.Valid(text):
			return "", failure.Newf(failure.AgentValidation, "agent.New", "%s is not UTF-8; store it as UTF-8", name)
		case strings.TrimSpace(string(text)) != "":
			texts = append(texts, strings.TrimSpace(string(text)))
		}
	}
	if len(texts) == 0 {
		return "", failure.Newf(failure.AgentValidation, "agent.New", "%s is empty; write the instructions into it, or leave it out", path)
	}
	return strings.Join(texts, "\n\n"), nil
}

// textFiles returns the .md and .txt files of a folder, in the order of their names.
func textFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	var names []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".md" || ext == ".txt") {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names, err
}

func newUnreadableError(path string, err error) error {
	why := "it cannot be read"
	if errors.Is(err, os.ErrNotExist) {
		why = "there is no such file or folder"
	}
	return failure.Newf(failure.AgentValidation, "agent.New", "%s: %s", path, why).Because(err)
}

// inConversationText replaces a placeholder whose value is given as a message of the conversation.
const inConversationText = "(given in the conversation as %s)"

// Resolve replaces the placeholders by values of the session (AD-30). history is the window of the turn. It also
// returns messages that come before all others. Modes: agent_validation for a required key or artifact that is
// missing. If the turn or its session has read untrusted text, a value may contain some. Then the value becomes a
// message of the conversation, and the history omits untrusted messages, which are in the conversation anyway. So
// no untrusted text enters the system prompt (guarantee S14).
func (in Instructions) Resolve(ctx context.Context, turn *hook.Turn, history []conversation.Message) (string, []conversation.Message, error) {
	if !in.hasPlaceholders {
		return in.text, nil, nil
	}
	r := &resolution{turn: turn, history: history}
	text := placeholder.ReplaceAllStringFunc(in.text, func(found string) string {
		if strings.HasPrefix(found, "{{") {
			return found[1 : len(found)-1]
		}
		parts := placeholder.FindStringSubmatch(found)
		return r.placeholderText(ctx, parts[1], parts[2] == "?")
	})
	return text, r.messages, r.err
}

// resolution replaces the placeholders of one prompt.
type resolution struct {
	turn     *hook.Turn
	history  []conversation.Message
	messages []conversation.Message // messages with the untrusted values
	err      error                  // the first error
}

// placeholderText returns the text that replaces the placeholder of a key.
func (r *resolution) placeholderText(ctx context.Context, key string, optional bool) string {
	if key == historyKey {
		trusted := slices.DeleteFunc(slices.Clone(beforePrompt(r.history)), func(m conversation.Message) bool { return m.UntrustedSource() != "" })
		return conversation.Transcript(trusted)
	}
	m := r.turn.Memory()
	value, err := lookUpText(ctx, m, key)
	if err == nil {
		source := conversation.MostRestrictiveSource(r.turn.Untrusted(), m.Untrusted())
		if source == "" || value == "" {
			return value
		}
		r.messages = append(r.messages, conversation.Message{
			Role: conversation.RoleUser, Author: r.turn.Info().Agent, Text: "What the instructions call " + key + ":\n\n" + value, Untrusted: source,
		})
		return fmt.Sprintf(inConversationText, key)
	}
	isMissing := failure.Is(err, failure.NotFound, failure.AgentState)
	switch {
	case isMissing && optional || r.err != nil:
	case isMissing:
		r.err = failure.Newf(failure.AgentValidation, "agent.Run",
			"the instructions want {%s}, which the session does not have; set it before, or write {%s?}", key, key).Because(err)
	default:
		r.err = fmt.Errorf("{%s}: %w", key, err)
	}
	return ""
}

// beforePrompt returns the messages without the user's last one, which the turn answers. The model reads that
// message anyway.
func beforePrompt(history []conversation.Message) []conversation.Message {
	if n := len(history); n > 0 && history[n-1].Role == conversation.RoleUser {
		return history[:n-1]
	}
	return history
}

// lookUpText returns the value of a state key, or the latest version of an artifact, as text.
func lookUpText(ctx context.Context, m *hook.Memory, name string) (string, error) {
	if artifact, ok := strings.CutPrefix(name, "artifact."); ok {
		content, _, err := m.LoadArtifact(ctx, artifact, 0)
		return string(content), err
	}
	value, err := m.Get(ctx, name)
	if err != nil {
		return "", err
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text, nil
	}
	return string(value), nil
}
