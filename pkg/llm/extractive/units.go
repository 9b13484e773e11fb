package extractive

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// unit is the smallest text that can be quoted: a sentence, a table row or a line of code.
type unit struct {
	passage int // index of the passage
	place   string
	text    string
	rawText string // text without the names of the table's columns
}

// splitter splits a passage into units, line by line.
type splitter struct {
	passage
	number int
	units  []unit

	code      bool     // inside a block of code
	header    []string // header of the current table (nil outside of a table, empty if the table has none)
	paragraph []string
	start     int // index of the first line of the paragraph
}

const fence = "```" // encloses a block of code in Markdown

var listItem = regexp.MustCompile(`^(?:[-*+]|\d+\.) +`)

// units cuts a passage up.
func (p passage) units(number int) []unit {
	s := &splitter{passage: p, number: number, code: p.startsInCode()}
	for i, line := range p.lines {
		s.addLine(i, strings.TrimSpace(line))
	}
	s.finishParagraph()
	return s.units
}

func (s *splitter) addLine(line int, text string) {
	comment, isComment := strings.CutPrefix(text, "//")
	switch {
	case strings.HasPrefix(text, fence):
		s.finishParagraph()
		s.code = !s.code
		return
	case s.code, path.Ext(s.path) == ".go" && !isComment:
		s.finishParagraph()
		s.addUnit(line, text, text)
		return
	case strings.HasPrefix(text, "|"):
		s.finishParagraph()
		s.tableRow(line, text)
		return
	case text == "", strings.HasPrefix(text, "#"):
		s.finishParagraph()
		return
	case listItem.MatchString(text):
		s.finishParagraph()
		text = listItem.ReplaceAllString(text, "")
	case isComment:
		text = strings.TrimSpace(comment)
	}
	if s.paragraph == nil {
		s.start = line
	}
	s.paragraph = append(s.paragraph, text)
}

// tableRow adds a table row as a unit that can be read alone, with the name of its column before each cell.
func (s *splitter) tableRow(line int, text string) {
	cells := splitCells(text)
	switch {
	case isTableRule(text):
		return
	case s.header == nil && line+1 < len(s.lines) && isTableRule(s.lines[line+1]):
		s.header = cells
		return
	case s.header == nil: // the passage begins inside a table
		s.header = []string{}
	}
	var parts []string
	for i, cell := range cells {
		if i < len(s.header) && s.header[i] != "" {
			cell = s.header[i] + ": " + cell
		}
		if cell != "" {
			parts = append(parts, cell)
		}
	}
	s.addUnit(line, strings.Join(parts, "; "), text)
}

// isTableRule reports whether a line is the rule between the header of a table and its rows.
func isTableRule(text string) bool { return strings.Trim(text, "|-: ") == "" }

func splitCells(line string) []string {
	cells := strings.Split(strings.Trim(line, "| "), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func (s *splitter) finishParagraph() {
	for _, sentence := range sentences(s.paragraph) {
		s.addUnit(s.start+sentence.line, sentence.text, sentence.text)
	}
	s.paragraph = nil
}

func (s *splitter) addUnit(line int, text, own string) {
	if strings.ContainsFunc(text, isDrawing) {
		return
	}
	u := unit{passage: s.number, text: conversation.Excerpt(text, maxQuoteLength), rawText: own}
	if s.path != "" {
		u.place = s.path + ":" + strconv.Itoa(s.line+line)
	}
	if u.text != "" {
		s.units = append(s.units, u)
	}
}

// isDrawing reports whether a character draws boxes or arrows. A line with such a character is part of a diagram
// and is not quoted.
func isDrawing(r rune) bool { return r >= '\u2500' && r <= '\u25ff' }

// startsInCode reports whether the passage begins inside a block of code.
func (p passage) startsInCode() bool {
	fences, last := 0, ""
	for _, line := range p.lines {
		last = strings.TrimSpace(line)
		if strings.HasPrefix(last, fence) {
			fences++
		}
	}
	return fences == 1 && last == fence
}

// sentence is a sentence of a paragraph, with the number of its first line.
type sentence struct {
	line int
	text string
}

// sentences splits the lines of a paragraph into sentences. A sentence ends with a full stop, question mark or
// exclamation mark before a space and a capital letter or quotation mark.
func sentences(lines []string) []sentence {
	var all []sentence
	var b strings.Builder
	line := 0
	for n, text := range lines {
		runes := []rune(text)
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		for i, r := range runes {
			if b.Len() == 0 {
				line = n
			}
			b.WriteRune(r)
			if strings.ContainsRune(".?!", r) && isSentenceEnd(runes[i+1:]) {
				all = append(all, sentence{line, b.String()})
				b.Reset()
			}
		}
	}
	if b.Len() > 0 {
		all = append(all, sentence{line, b.String()})
	}
	return all
}

// isSentenceEnd reports whether a sentence ends before rest, which is the text after a full stop.
func isSentenceEnd(rest []rune) bool {
	if len(rest) == 0 {
		return true
	}
	if rest[0] != ' ' || len(rest) == 1 {
		return false
	}
	return unicode.IsUpper(rest[1]) || strings.ContainsRune("`\"“*[(", rest[1])
}
