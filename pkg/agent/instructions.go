package agent

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

// DefaultInstructions are those of an agent that has none (CO-3).
const DefaultInstructions = "You are a helpful assistant. Answer briefly and truthfully. Use the tools that you have, and say so when you do not know."

// instructions are a system prompt, which may have places for what a session knows.
type instructions struct {
	text   string
	filled bool // it has such places
}

// place is {key}, {key?}, {artifact.name}, {session.history}, or one of them between double braces. Other braces,
// such as those of JSON, are text.
var place = regexp.MustCompile(`\{\{[A-Za-z_][A-Za-z0-9_:.-]*\??\}\}|\{([A-Za-z_][A-Za-z0-9_:.-]*)(\??)\}`)

// historyPlace is the place of what was said before (RA-22). It hides a key of this name.
const historyPlace = "session.history"

func newInstructions(c Config) (instructions, error) {
	text, err := source(c)
	return instructions{text: text, filled: place.MatchString(text)}, err
}

// source reads the instructions from where they are (CO-2, CO-3).
func source(c Config) (string, error) {
	switch {
	case c.InstructionsFrom != "":
		return load(c.InstructionsFrom)
	case c.Instructions == "":
		if c.Run != nil {
			return "", nil
		}
		return DefaultInstructions, nil
	case strings.ContainsAny(c.Instructions, "\n\x00") || len(c.Instructions) > maxPath:
		return c.Instructions, nil // no path
	}
	switch info, err := os.Stat(c.Instructions); {
	case err == nil && !info.IsDir():
		return load(c.Instructions)
	case err == nil:
		c.Log.Warn("the instructions are the name of a folder, and are taken as they are; use InstructionsFrom to read it",
			zap.String("agent", c.Name), zap.String("instructions", c.Instructions))
	case looksLikePath(c.Instructions):
		c.Log.Warn("the instructions look like the name of a file, and there is no such file; they are taken as they are",
			zap.String("agent", c.Name), zap.String("instructions", c.Instructions))
	}
	return c.Instructions, nil
}

// maxPath is what systems take as a path, in bytes.
const maxPath = 4096

// looksLikePath reports whether a text is one word with an ending, such as "prompt.md", or
// with a folder in front of it.
func looksLikePath(text string) bool {
	return !strings.ContainsAny(text, " \t{") && (len(filepath.Ext(text)) > 1 || strings.ContainsRune(text, filepath.Separator))
}

// load reads a file, or the texts in a folder in the order of their names.
func load(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = textsIn(path); err != nil {
			return "", unreadable(path, err)
		}
	}
	var texts []string
	for _, name := range names {
		text, err := os.ReadFile(name) //nolint:gosec // the author of the agent names it
		switch {
		case err != nil:
			return "", unreadable(name, err)
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

// textsIn are the .md and .txt files of a folder, in the order of their names.
func textsIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	var names []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".md" || ext == ".txt") {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names, err
}

func unreadable(path string, err error) error {
	why := "it cannot be read"
	if errors.Is(err, os.ErrNotExist) {
		why = "there is no such file or folder"
	}
	return failure.Newf(failure.AgentValidation, "agent.New", "%s: %s", path, why).Because(err)
}

// given is what a place stands for that is no part of the system prompt.
const given = "(given in the conversation as %s)"

// resolve fills the places with what the session knows (AD-30); history is the window of the
// turn. Modes: agent_validation for a key or an artifact that is missing and may not be.
//
// In a turn that is given untrusted words, or whose session has some, values may be such. Then they are messages
// of the conversation, which are returned too, and untrusted messages are left out of the history,
// where they stand anyway: none of it enters the system prompt (S14).
func (in instructions) resolve(ctx context.Context, turn *hook.Turn, history []conversation.Message) (string, []conversation.Message, error) {
	if !in.filled {
		return in.text, nil, nil
	}
	m := turn.Memory()
	var failed error
	var told []conversation.Message
	text := place.ReplaceAllStringFunc(in.text, func(found string) string {
		if strings.HasPrefix(found, "{{") {
			return found[1 : len(found)-1]
		}
		parts := place.FindStringSubmatch(found)
		if parts[1] == historyPlace {
			return conversation.Transcript(slices.DeleteFunc(slices.Clone(before(history)), func(m conversation.Message) bool { return m.Source() != "" }))
		}
		value, err := lookup(ctx, m, parts[1])
		source := conversation.Gravest(turn.Untrusted(), m.Untrusted())
		switch {
		case err == nil && source != "" && value != "":
			told = append(told, conversation.Message{
				Role: conversation.RoleUser, Author: turn.Info().Agent, Text: "What the instructions call " + parts[1] + ":\n\n" + value, Untrusted: source,
			})
			return fmt.Sprintf(given, parts[1])
		case err == nil:
			return value
		case failure.Is(err, failure.NotFound, failure.AgentState) && parts[2] == "?":
			return ""
		case failed == nil:
			failed = fmt.Errorf("{%s}: %w", parts[1], err)
			if failure.Is(err, failure.NotFound, failure.AgentState) {
				failed = failure.Newf(failure.AgentValidation, "agent.Run",
					"the instructions want {%s}, which the session does not have; set it before, or write {%s?}", parts[1], parts[1]).Because(err)
			}
		}
		return ""
	})
	return text, told, failed
}

// before are the messages before the one that the turn answers, which the model reads anyway.
func before(history []conversation.Message) []conversation.Message {
	if n := len(history); n > 0 && history[n-1].Role == conversation.RoleUser {
		return history[:n-1]
	}
	return history
}

// lookup is the text of a key or an artifact.
func lookup(ctx context.Context, m *hook.Memory, name string) (string, error) {
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
