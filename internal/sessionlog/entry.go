package sessionlog

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// prose is text that somebody said. In YAML it is a block of lines where that can be read
// back, which is not so of every text, and is quoted otherwise.
type prose string

// MarshalYAML implements yaml.Marshaler.
func (p prose) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: valid(string(p))}
	if strings.ContainsAny(n.Value, "\n\t") {
		n.Style = yaml.DoubleQuotedStyle
		if p.block() {
			n.Style = yaml.LiteralStyle
		}
	}
	return n, nil
}

// block reports whether the text is plain lines: none begins or ends with white space, but
// for spaces that indent it, and nothing in it needs an escape.
func (p prose) block() bool {
	for line := range strings.SplitSeq(string(p), "\n") {
		if line != strings.TrimRight(line, " ") || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return false
		}
	}
	return !strings.HasPrefix(string(p), " ") && !strings.HasPrefix(string(p), "\n") && !strings.HasSuffix(string(p), "\n")
}

// valid is a text with what is not UTF-8 replaced: YAML knows none.
func valid(text string) string { return strings.ToValidUTF8(text, string(unicode.ReplacementChar)) }

// blank is what a person has not filled in yet.
func blank() yaml.Node {
	return yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle}
}

func filled(n yaml.Node) bool { return n.Kind != yaml.ScalarNode || n.Value != "" && n.Tag != "!!null" }

// sessionLog is a session log as it is in its file (CO-55, CO-58).
type sessionLog struct {
	Name     string               `yaml:"name"`
	Agent    prose                `yaml:"agent"`
	Model    prose                `yaml:"model"`
	Input    prose                `yaml:"input"`   // the first
	Created  time.Time            `yaml:"created"` // with the first run
	Started  time.Time            `yaml:"started"` // of the latest run
	Updated  time.Time            `yaml:"updated"`
	Runs     int                  `yaml:"runs"`
	Sessions map[int]prose        `yaml:"sessions"` // by run
	Turns    []entry              `yaml:"turns"`
	Own      map[string]yaml.Node `yaml:",inline"` // what a person added
}

// entry is a turn: what the latest run that came to it made of it, and those before.
type entry struct {
	Turn     int       `yaml:"turn"`
	Input    prose     `yaml:"input"`
	Expected yaml.Node `yaml:"expected"` // a person fills it in
	outcome  `yaml:",inline"`
	History  []outcome            `yaml:"history"` // latest first
	Own      map[string]yaml.Node `yaml:",inline"`
}

// outcome is what a run made of a turn.
type outcome struct {
	Run         int       `yaml:"run"`
	Model       prose     `yaml:"model,omitempty"`
	Output      prose     `yaml:"output"`
	Reason      prose     `yaml:"reason,omitempty"`
	Error       prose     `yaml:"error,omitempty"`
	ToolsCalled []prose   `yaml:"tools_called,flow"`
	Evaluation  yaml.Node `yaml:"evaluation"` // a person fills it in
	Meta        string    `yaml:"meta"`       // a measure
}

// put enters what a run made of the turn: on top when no later run came to it.
func (e *entry) put(o outcome) {
	switch {
	case o.Run == e.Run:
		o.Evaluation = e.Evaluation
		e.outcome = o
	case o.Run > e.Run:
		if e.Run > 0 {
			e.History = slices.Insert(e.History, 0, e.outcome)
		}
		e.outcome = o
	default:
		at, found := slices.BinarySearchFunc(e.History, o.Run, func(h outcome, run int) int { return run - h.Run })
		if found {
			o.Evaluation = e.History[at].Evaluation
			e.History[at] = o
		} else {
			e.History = slices.Insert(e.History, at, o)
		}
	}
	e.History = e.History[:min(len(e.History), MaxRuns-1)]
}

// edited reports whether a person filled something in.
func (e *entry) edited() bool {
	return filled(e.Expected) || filled(e.Evaluation) || len(e.Own) > 0 ||
		slices.ContainsFunc(e.History, func(o outcome) bool { return filled(o.Evaluation) })
}

func (s *sessionLog) edited() bool {
	return len(s.Own) > 0 || slices.ContainsFunc(s.Turns, func(e entry) bool { return e.edited() })
}
