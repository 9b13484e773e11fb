package builtin

import (
	"path"
	"regexp"
	"strings"
)

// Sizes in bytes. A short passage is meaningless on its own. Only a few long passages fit into the part of a
// search result that the next step sees.
const (
	minPassageBytes = 12
	maxPassageBytes = 700
	maxLineBytes    = 4 << 10 // the rest of a longer line is omitted
)

// passage is a block of text between blank lines, or a part of a long block. It contains no blank line. So its
// n-th line is n-1 lines after its first line in the file.
type passage struct {
	path    string
	line    int // of the first line, from 1
	heading string
	text    string
}

// splitter splits one file into passages.
type splitter struct {
	path        string
	headings    []string // current Markdown headings by level, or the current Go declaration
	inCodeBlock bool     // inside a code block of Markdown

	passages []passage
	start    int
	lines    []string
	bytes    int
}

// splitPassages returns the passages of a file.
func splitPassages(file, text string) []passage {
	c := &splitter{path: file}
	heading := c.markdownHeading
	if path.Ext(file) == ".go" {
		heading = c.goHeading
	}
	line := 0
	for text := range strings.Lines(text) {
		line++
		text = strings.TrimRight(text, "\r\n\t ")
		if len(text) > maxLineBytes {
			text = strings.ToValidUTF8(text[:maxLineBytes], "")
		}
		if heading(text) || text == "" {
			c.flush()
			continue
		}
		if c.bytes > 0 && c.bytes+len(text) > maxPassageBytes {
			c.flush()
		}
		if c.bytes == 0 {
			c.start = line
		}
		c.lines = append(c.lines, text)
		c.bytes += len(text) + 1
	}
	c.flush()
	return c.passages
}

func (s *splitter) flush() {
	if s.bytes >= minPassageBytes {
		s.passages = append(s.passages, passage{
			path:    s.path,
			line:    s.start,
			heading: strings.Join(s.headings, " "),
			text:    strings.Join(s.lines, "\n"),
		})
	}
	s.lines, s.bytes = nil, 0
}

var headingPattern = regexp.MustCompile(`^(#{1,6}) +(.*)$`)

// markdownHeading reports whether the line is a heading, and records it. A heading is not a passage itself.
func (s *splitter) markdownHeading(line string) bool {
	if strings.HasPrefix(strings.TrimSpace(line), "```") {
		s.inCodeBlock = !s.inCodeBlock
	}
	m := headingPattern.FindStringSubmatch(line)
	if m == nil || s.inCodeBlock {
		return false
	}
	s.flush() // the text before belongs to the previous heading
	level := len(m[1])
	s.headings = append(s.headings[:min(level-1, len(s.headings))], m[2])
	return true
}

var declarationPattern = regexp.MustCompile(`^(?:package|func|type|var|const)\b.*`)

// goHeading records the Go declaration that the following lines belong to. The passage includes the line of the
// declarationPattern and the comment before it.
func (s *splitter) goHeading(line string) bool {
	if declarationPattern.MatchString(line) {
		s.headings = []string{line}
	}
	return false
}
