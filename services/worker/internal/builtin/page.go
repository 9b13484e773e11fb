package builtin

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// pageText returns the text of an HTML page as a reader sees it. It contains the title, paragraphs on separate
// lines, markers for headings and list items, and link targets. A page that is not HTML is returned unchanged.
func pageText(page string, from *url.URL) string {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return page
	}
	p := &textBuilder{base: from}
	p.walk(root)
	return strings.TrimSpace(p.text.String())
}

// textBuilder collects the text of a page.
type textBuilder struct {
	base         *url.URL
	text         strings.Builder
	needsSpace   bool // a space is due before the next word
	neededBreaks int  // line breaks that are due before the next word
	preDepth     int  // number of enclosing <pre>
	afterMarker  bool // a marker was written last, and the next word follows it without a space
}

// skippedElements are elements whose content is not visible.
var skippedElements = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Iframe: true,
	atom.Svg: true, atom.Object: true, atom.Canvas: true, atom.Select: true, atom.Textarea: true,
}

// blockBreaks maps elements that begin a new line to the number of line breaks around them.
var blockBreaks = map[atom.Atom]int{
	atom.P: 2, atom.H1: 2, atom.H2: 2, atom.H3: 2, atom.H4: 2, atom.H5: 2, atom.H6: 2, atom.Title: 2,
	atom.Ul: 2, atom.Ol: 2, atom.Table: 2, atom.Pre: 2, atom.Blockquote: 2, atom.Section: 2,
	atom.Article: 2, atom.Header: 2, atom.Footer: 2, atom.Nav: 2, atom.Main: 2,
	atom.Div: 1, atom.Li: 1, atom.Tr: 1, atom.Dt: 1, atom.Dd: 1, atom.Br: 1, atom.Hr: 1, atom.Option: 1,
}

var lineMarkers = map[atom.Atom]string{
	atom.Title: "# ", atom.H1: "# ", atom.H2: "## ", atom.H3: "### ", atom.H4: "#### ", atom.H5: "##### ", atom.H6: "###### ", atom.Li: "- ",
}

func (t *textBuilder) walk(n *html.Node) {
	if n.Type == html.TextNode {
		t.writeText(n.Data)
		return
	}
	if n.Type == html.ElementNode {
		if skippedElements[n.DataAtom] || attribute(n, "hidden") != nil {
			return
		}
		t.neededBreaks = max(t.neededBreaks, blockBreaks[n.DataAtom])
		if mark := lineMarkers[n.DataAtom]; mark != "" && n.FirstChild != nil {
			t.writeWord(mark)
			t.afterMarker = true
		}
		if n.DataAtom == atom.Td || n.DataAtom == atom.Th {
			t.needsSpace = true
		}
	}
	if n.DataAtom == atom.Pre {
		t.preDepth++
		defer func() { t.preDepth-- }()
	}
	for c := range n.ChildNodes() {
		t.walk(c)
	}
	if n.DataAtom == atom.A {
		t.writeLinkTarget(n)
	}
	t.neededBreaks = max(t.neededBreaks, blockBreaks[n.DataAtom])
}

// writeText appends text as HTML displays it: white space becomes one space, except inside <pre>.
func (t *textBuilder) writeText(text string) {
	if t.preDepth > 0 {
		t.writeWord(text)
		return
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		t.needsSpace = t.needsSpace || text != ""
		return
	}
	t.needsSpace = t.needsSpace || strings.TrimLeft(text[:1], " \t\r\n") == ""
	t.writeWord(strings.Join(words, " "))
	t.needsSpace = strings.TrimRight(text[len(text)-1:], " \t\r\n") == ""
}

// writeWord appends a word, after any pending line breaks or space.
func (t *textBuilder) writeWord(text string) {
	switch {
	case t.text.Len() == 0, t.afterMarker:
	case t.neededBreaks > 0:
		t.text.WriteString("\n\n"[:min(t.neededBreaks, 2)])
	case t.needsSpace:
		t.text.WriteByte(' ')
	}
	t.neededBreaks, t.needsSpace, t.afterMarker = 0, false, false
	t.text.WriteString(text)
}

// writeLinkTarget appends the target of a link in brackets, unless it leads to the same page.
func (t *textBuilder) writeLinkTarget(n *html.Node) {
	to := attribute(n, "href")
	if to == nil {
		return
	}
	u, err := t.base.Parse(strings.TrimSpace(*to))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return
	}
	here := *t.base
	here.Fragment = ""
	u.Fragment = ""
	if u.String() == here.String() {
		return
	}
	space := t.needsSpace
	t.needsSpace = true
	t.writeWord("(" + u.String() + ")")
	t.needsSpace = space
}

func attribute(n *html.Node, name string) *string {
	for _, a := range n.Attr {
		if a.Key == name {
			return &a.Val
		}
	}
	return nil
}
