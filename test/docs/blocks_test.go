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

// reasons lists why a block of a page cannot run here. The info string of the block names one: ```sh
// needs=cluster. Such a block runs with stand-ins, which check files, flags, methods and manifests.
var reasons = map[string]string{
	"cluster":      "it changes a Kubernetes cluster",
	"installation": "it names hosts and files of the reader's own installation",
	"internet":     "it loads something from the internet",
	"minutes":      "it runs for minutes, and CI runs it as a part of its own",
}

// block is a code block of a page. It may also be an HTML comment with commands that stand in for an action
// described in the text: <!-- run …commands… -->.
type block struct {
	page, kind string
	line       int // of its first line of content
	lines      []string
	needs      string // one of the reasons, or empty
	exit       string // the expected exit code (empty means 0)
	background bool   // it runs in another terminal until the end of the page
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

func (b block) text() string { return strings.Join(b.lines, "\n") + "\n" }

// isShell reports whether a reader types the block.
func (b block) isShell() bool { return b.kind == "sh" || b.kind == "console" || b.kind == "run" }

var (
	fence = regexp.MustCompile("^( *)```(.*)$")
	// kinds lists the languages of code blocks: blocks that run, blocks of output, and blocks that other tests
	// read. A block of kind log quotes the output of the program in the other terminal.
	kinds = []string{"sh", "console", "run", "output", "log", "text", "go", "yaml", "json", "proto", "ts"}
)

// parse returns the blocks of a page, in order.
func parse(page, text string) (blocks []block, err error) {
	var b *block
	var indent string
	for i, line := range strings.Split(text, "\n") {
		found := fence.FindStringSubmatch(line)
		switch {
		case b == nil && line == "<!-- run":
			b = &block{page: page, kind: "run", line: i + 2}
		case b == nil && found != nil:
			indent = found[1]
			if b, err = parseInfo(page, i+2, found[2]); err != nil {
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

// parseInfo reads the info string of a block.
func parseInfo(page string, line int, info string) (*block, error) {
	b := &block{page: page, line: line}
	words := strings.Fields(info)
	if len(words) == 0 || !slices.Contains(kinds, words[0]) {
		return nil, fmt.Errorf("%v: the block has the kind %q, want one of %v", b, info, kinds)
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
		case name == "needs" && reasons[value] != "":
			b.needs = value
		default:
			return nil, fmt.Errorf("%v: %q is unknown; want stays, exit=N or needs= one of %v", b, word, slices.Sorted(maps.Keys(reasons)))
		}
	}
	return b, nil
}

// Every block has a kind that says whether it runs, and a block that cannot run here says why.
func TestBlocks_DeclareWhetherTheyRun(t *testing.T) {
	for _, page := range pages(t) {
		blocks, err := parse(page, read(t, page))
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

func TestParse_ReadsInfoStringsAndComments(t *testing.T) {
	blocks, err := parse("p.md", "<!-- run\ncd x\n-->\n\n  ```sh needs=cluster\n  kubectl get\n  ```\n```console exit=1\n$ false\n```\n")
	require.NoError(t, err)
	require.Equal(t, []block{
		{page: "p.md", kind: "run", line: 2, lines: []string{"cd x"}},
		{page: "p.md", kind: "sh", line: 6, lines: []string{"kubectl get"}, needs: "cluster"},
		{page: "p.md", kind: "console", line: 9, lines: []string{"$ false"}, exit: "1"},
	}, blocks)
	for _, wrong := range []string{"```sh needs=luck\n```", "```bash\n```", "```\n```", "```output stays\n```", "```sh\n"} {
		_, err := parse("p.md", wrong)
		require.Error(t, err, wrong)
	}
}
