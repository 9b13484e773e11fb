package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// skipReasons lists why a code block of a page cannot run here. The info string of such a block names the reason, as
// in ```sh needs=cluster. Stand-ins run the block instead and check files, flags, methods and manifests.
var skipReasons = map[string]string{
	"cluster":      "it changes a Kubernetes cluster",
	"installation": "it names hosts and files of the reader's own installation",
	"internet":     "it loads something from the internet",
	"minutes":      "it runs for minutes, and CI runs it as a part of its own",
}

// block is a code block of a page. It may also be an HTML comment with commands for an action that the text
// describes: <!-- run …commands… -->.
type block struct {
	page, kind string
	line       int // of its first line of content
	lines      []string
	skipReason string // one of the skipReasons, or empty
	exit       string // the expected exit code (empty means 0)
	background bool   // it runs in another terminal until the end of the page
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

func (b block) text() string { return strings.Join(b.lines, "\n") + "\n" }

// isShell reports whether the block contains commands that a reader types.
func (b block) isShell() bool { return b.kind == "sh" || b.kind == "console" || b.kind == "run" }

var (
	fencePattern = regexp.MustCompile("^( *)```(.*)$")
	// blockKinds lists the languages of code blocks: blocks that run, blocks of output, and blocks that other tests
	// check. A block of kind log quotes the output of the program in the other terminal.
	blockKinds = []string{"sh", "console", "run", "output", "log", "text", "go", "yaml", "json", "proto", "ts"}
)

// parseBlocks returns the blocks of a page, in order.
func parseBlocks(page, text string) (blocks []block, err error) {
	var b *block
	var indent string
	for i, line := range strings.Split(text, "\n") {
		found := fencePattern.FindStringSubmatch(line)
		switch {
		case b == nil && line == "<!-- run":
			b = &block{page: page, kind: "run", line: i + 2}
		case b == nil && found != nil:
			indent = found[1]
			if b, err = parseInfoString(page, i+2, found[2]); err != nil {
				return nil, err
			}
		case b == nil:
		case b.kind == "run" && line == "-->", b.kind != "run" && found != nil:
			blocks = append(blocks, *b)
			b, indent = nil, ""
		default:
			b.lines = append(b.lines, strings.TrimPrefix(line, indent))
		}
	}
	if b != nil {
		return nil, fmt.Errorf("%v: the block has no end", b)
	}
	return blocks, nil
}

// parseInfoString reads the language and the options of a block.
func parseInfoString(page string, line int, info string) (*block, error) {
	b := &block{page: page, line: line}
	words := strings.Fields(info)
	if len(words) == 0 || !slices.Contains(blockKinds, words[0]) {
		return nil, fmt.Errorf("%v: the block has the kind %q, want one of %v", b, info, blockKinds)
	}
	b.kind = words[0]
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case !b.isShell():
			return nil, fmt.Errorf("%v: %q is for blocks that run", b, word)
		case word == "stays":
			b.background = true
		case name == "exit":
			b.exit = value
		case name == "needs" && skipReasons[value] != "":
			b.skipReason = value
		default:
			return nil, fmt.Errorf("%v: %q is unknown; want stays, exit=N or needs= one of %v", b, word, slices.Sorted(maps.Keys(skipReasons)))
		}
	}
	return b, nil
}

// Every block has a kind that says whether it runs. A block that cannot run here gives the reason.
func TestBlocks_DeclareWhetherTheyRun(t *testing.T) {
	for _, page := range pagePaths(t) {
		blocks, err := parseBlocks(page, readPage(t, page))
		require.NoError(t, err)
		for i, b := range blocks {
			if b.kind == "output" {
				require.True(t, i > 0 && blocks[i-1].isShell(), "%v: output follows the block that prints it", b)
			}
			if b.kind != "console" && b.kind != "sh" {
				require.NotRegexp(t, `(?m)^\$ `, b.text(), "%v: a block with commands is of kind console", b)
			}
			if b.kind == "console" {
				require.True(t, strings.HasPrefix(b.lines[0], "$ "), "%v: a console begins with a command", b)
			}
		}
	}
}

func TestParseBlocks_ReadsInfoStringsAndComments(t *testing.T) {
	blocks, err := parseBlocks("p.md", "<!-- run\ncd x\n-->\n\n  ```sh needs=cluster\n  kubectl get\n  ```\n```console exit=1\n$ false\n```\n")
	require.NoError(t, err)
	require.Equal(t, []block{
		{page: "p.md", kind: "run", line: 2, lines: []string{"cd x"}},
		{page: "p.md", kind: "sh", line: 6, lines: []string{"kubectl get"}, skipReason: "cluster"},
		{page: "p.md", kind: "console", line: 9, lines: []string{"$ false"}, exit: "1"},
	}, blocks)
	for _, wrong := range []string{"```sh needs=luck\n```", "```bash\n```", "```\n```", "```output stays\n```", "```sh\n"} {
		_, err := parseBlocks("p.md", wrong)
		require.Error(t, err, wrong)
	}
}
