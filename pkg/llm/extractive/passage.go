package extractive

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// passage is a paragraph with its place in a file. Search tools return it as a line "path:line", followed by the
// text up to an empty line.
type passage struct {
	path  string // (empty if the source of the text is unknown)
	line  int    // number of the text's first line
	lines []string
}

// citation matches the first line of a passage. The path must have an extension, because other lines can also end
// with a colon and a number.
var citation = regexp.MustCompile(`^(\S.*\.\w+):(\d+)$`)

// collectPassages returns the passages to quote from, in the order of the messages, and whether there is any
// message of a tool or an agent. Passages without a place are used only if no passage has one.
func collectPassages(messages []conversation.Message) (found []passage, told bool) {
	var placed, loose []passage
	for _, m := range messages {
		if m.Role != conversation.RoleTool && (m.Role != conversation.RoleUser || m.Author == "") {
			continue
		}
		told = true
		for block := range strings.SplitSeq(m.Text, "\n\n") {
			p, ok := parsePassage(block)
			switch {
			case !ok:
			case p.path != "":
				placed = append(placed, p)
			default:
				loose = append(loose, p)
			}
		}
	}
	if len(placed) > 0 {
		return firstOfEachPlace(placed), told
	}
	return loose, told
}

// parsePassage parses one paragraph. It skips text that agents add to their findings, such as "Used tool: x" or a
// heading that ends with a colon.
func parsePassage(block string) (passage, bool) {
	lines := strings.Split(strings.Trim(block, "\n"), "\n")
	for len(lines) > 0 && strings.HasPrefix(lines[0], "Used tool: ") {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return passage{}, false
	}
	if m := citation.FindStringSubmatch(lines[0]); m != nil {
		line, err := strconv.Atoi(m[2])
		return passage{path: m[1], line: line, lines: lines[1:]}, err == nil && len(lines) > 1
	}
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasSuffix(l, ":") || l == Disclaimer || strings.HasPrefix(l, nothingFound)
	})
	return passage{lines: lines}, len(lines) > 0
}

// firstOfEachPlace removes all but the first passage of each place.
func firstOfEachPlace(all []passage) []passage {
	type place struct {
		path string
		line int
	}
	seen := map[place]bool{}
	return slices.DeleteFunc(all, func(p passage) bool {
		at := place{p.path, p.line}
		again := seen[at]
		seen[at] = true
		return again
	})
}
