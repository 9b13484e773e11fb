package builtin

import (
	"path"
	"regexp"
	"strings"
)

// Sizes in bytes. Short passages say nothing alone; of long ones fewer fit into what the
// next step gets to know of a search.
const (
	minPassage = 12
	maxPassage = 700
	maxLine    = 4 << 10 // the rest of a longer line is left out
)

// passage is a block of text between blank lines, or a part of a long one. It has no blank
// line within, so that its n-th line is the n-th from its place in the file.
type passage struct {
	path    string
	line    int // from 1
	heading string
	text    string
}

// splitter cuts one file into passages.
type splitter struct {
	path     string
	headings []string // of Markdown, by level; of Go, the declaration
	fenced   bool     // inside a block of code of Markdown

	done  []passage
	start int
	lines []string
	bytes int
}

// splitPassages makes the passages of a file.
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
		if len(text) > maxLine {
			text = strings.ToValidUTF8(text[:maxLine], "")
		}
		if heading(text) || text == "" {
			c.flush()
			continue
		}
		if c.bytes > 0 && c.bytes+len(text) > maxPassage {
			c.flush()
		}
		if c.bytes == 0 {
			c.start = line
		}
		c.lines = append(c.lines, text)
		c.bytes += len(text) + 1
	}
	c.flush()
	return c.done
}

func (c *splitter) flush() {
	if c.bytes >= minPassage {
		c.done = append(c.done, passage{
			path:    c.path,
			line:    c.start,
			heading: strings.Join(c.headings, " "),
			text:    strings.Join(c.lines, "\n"),
		})
	}
	c.lines, c.bytes = nil, 0
}

var headingLine = regexp.MustCompile(`^(#{1,6}) +(.*)$`)

// markdownHeading notes a heading, which is no passage itself, and reports whether the
// line is one.
func (c *splitter) markdownHeading(line string) bool {
	if strings.HasPrefix(strings.TrimSpace(line), "```") {
		c.fenced = !c.fenced
	}
	m := headingLine.FindStringSubmatch(line)
	if m == nil || c.fenced {
		return false
	}
	c.flush() // what came before stands under the heading before
	level := len(m[1])
	c.headings = append(c.headings[:min(level-1, len(c.headings))], m[2])
	return true
}

var declaration = regexp.MustCompile(`^(?:package|func|type|var|const)\b.*`)

// goHeading notes the declaration in which the lines stand. The line itself belongs to the
// passage, and its comment before it does too.
func (c *splitter) goHeading(line string) bool {
	if declaration.MatchString(line) {
		c.headings = []string{line}
	}
	return false
}
