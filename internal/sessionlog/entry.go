package sessionlog

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// yamlText is a text of a person or a model. In YAML, a text with several lines is a literal block if that can be
// read back unchanged, and a quoted string otherwise.
type yamlText string

// MarshalYAML implements yaml.Marshaler.
func (y yamlText) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: toValidUTF8(string(y))}
	if strings.ContainsAny(n.Value, "\n\t") {
		n.Style = yaml.DoubleQuotedStyle
		if y.fitsBlock() {
			n.Style = yaml.LiteralStyle
		}
	}
	return n, nil
}

// fitsBlock reports whether the text can be written as a literal block. No line may end with a space, and no
// character may need an escape. The text may not begin with a space, nor begin or end with a line break.
func (y yamlText) fitsBlock() bool {
	for line := range strings.SplitSeq(string(y), "\n") {
		if line != strings.TrimRight(line, " ") || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return false
		}
	}
	return !strings.HasPrefix(string(y), " ") && !strings.HasPrefix(string(y), "\n") && !strings.HasSuffix(string(y), "\n")
}

// toValidUTF8 replaces invalid UTF-8, which YAML cannot represent.
func toValidUTF8(text string) string {
	return strings.ToValidUTF8(text, string(unicode.ReplacementChar))
}

// emptyNode returns an empty text, which a person may fill in later.
func emptyNode() yaml.Node {
	return yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle}
}

func isFilled(n yaml.Node) bool {
	return n.Kind != yaml.ScalarNode || n.Value != "" && n.Tag != "!!null"
}

// sessionLog is the content of a session log file: the turns of a session and their outcomes in each run (CO-55,
// CO-58).
type sessionLog struct {
	Name         string               `yaml:"name"`
	Agent        yamlText             `yaml:"agent"`
	Model        yamlText             `yaml:"model"`
	Input        yamlText             `yaml:"input"`   // first input of the session
	Created      time.Time            `yaml:"created"` // time of the first run
	Started      time.Time            `yaml:"started"` // time of the latest run
	Updated      time.Time            `yaml:"updated"`
	Runs         int                  `yaml:"runs"`
	Sessions     map[int]yamlText     `yaml:"sessions"` // session ids by run
	Turns        []turnEntry          `yaml:"turns"`
	CustomFields map[string]yaml.Node `yaml:",inline"` // fields that a person added
}

// turnEntry is a turn of a session log. It holds the turn's outcome in the latest run that reached it, and in
// earlier runs.
type turnEntry struct {
	Turn         int       `yaml:"turn"`
	Input        yamlText  `yaml:"input"`
	Expected     yaml.Node `yaml:"expected"` // a person fills it in
	turnOutcome  `yaml:",inline"`
	History      []turnOutcome        `yaml:"history"` // latest first
	CustomFields map[string]yaml.Node `yaml:",inline"`
}

// turnOutcome is the outcome of a turn in one run.
type turnOutcome struct {
	Run         int        `yaml:"run"`
	Model       yamlText   `yaml:"model,omitempty"`
	Output      yamlText   `yaml:"output"`
	Reason      yamlText   `yaml:"reason,omitempty"`
	Error       yamlText   `yaml:"error,omitempty"`
	ToolsCalled []yamlText `yaml:"tools_called,flow"`
	Evaluation  yaml.Node  `yaml:"evaluation"` // a person fills it in
	Meta        string     `yaml:"meta"`       // a turnUsage as JSON
}

// setOutcome stores the outcome of a run. It becomes the latest outcome unless a later run has already reached the
// turn.
func (e *turnEntry) setOutcome(o turnOutcome) {
	switch {
	case o.Run == e.Run:
		o.Evaluation = e.Evaluation
		e.turnOutcome = o
	case o.Run > e.Run:
		if e.Run > 0 {
			e.History = slices.Insert(e.History, 0, e.turnOutcome)
		}
		e.turnOutcome = o
	default:
		at, found := slices.BinarySearchFunc(e.History, o.Run, func(h turnOutcome, run int) int { return run - h.Run })
		if found {
			o.Evaluation = e.History[at].Evaluation
			e.History[at] = o
		} else {
			e.History = slices.Insert(e.History, at, o)
		}
	}
	e.History = e.History[:min(len(e.History), MaxRuns-1)]
}

// isEdited reports whether a person has filled in or added a field.
func (e *turnEntry) isEdited() bool {
	return isFilled(e.Expected) || isFilled(e.Evaluation) || len(e.CustomFields) > 0 ||
		slices.ContainsFunc(e.History, func(o turnOutcome) bool { return isFilled(o.Evaluation) })
}

func (s *sessionLog) isEdited() bool {
	return len(s.CustomFields) > 0 || slices.ContainsFunc(s.Turns, func(e turnEntry) bool { return e.isEdited() })
}
