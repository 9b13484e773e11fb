package workflow

import (
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/manifest"
)

// checker gathers what is wrong with a declaration.
type checker struct {
	document manifest.Document
	spec     declaration
	problems []error
}

func (c *checker) wrong(at []any, format string, args ...any) {
	c.problems = append(c.problems, c.document.At(at...).Errorf(format, args...))
}

// target checks that a field names a step.
func (c *checker) target(at []any, field, name string) {
	switch _, ok := c.spec.Steps[name]; {
	case name == "":
		c.wrong(at, "%s: names no step; want one of %s", field, c.names())
	case !ok:
		c.wrong(at, "%s: unknown step %q; want one of %s", field, name, c.names())
	}
}

func (c *checker) names() string {
	return strings.Join(slices.Sorted(maps.Keys(c.spec.Steps)), ", ")
}

// step checks one step on its own.
func (c *checker) step(name string, s stepDeclaration, agents map[string]bool) {
	at := func(keys ...any) []any { return append([]any{"steps", name}, keys...) }
	switch {
	case s.Agent == "":
		c.wrong(at(), "step %s: agent is missing", name)
	case len(agents) > 0 && !agents[s.Agent]:
		c.wrong(at("agent"), "step %s: unknown agent %q; declared are %s", name, s.Agent, strings.Join(slices.Sorted(maps.Keys(agents)), ", "))
	}
	ways := 0
	for _, set := range []bool{s.Next != "", len(s.Routes) > 0, s.End} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		c.wrong(at(), "step %s: want exactly one of next, routes and end, got %d", name, ways)
	}
	if s.Next != "" {
		c.target(at("next"), "next", s.Next)
	}
	for i, route := range s.Routes {
		c.target(at("routes", i), "routes", route)
	}
	if s.Default != "" && !slices.Contains(s.Routes, s.Default) {
		c.wrong(at("default"), "step %s: default %q is not among its routes", name, s.Default)
	}
	for i, r := range s.Rules {
		c.target(at("rules", i, "next"), "rules.next", r.Next)
		if r.When.ReplyTo == "" && r.When.UnansweredMessages <= 0 {
			c.wrong(at("rules", i), "step %s: rule %d has no condition; want replyTo or unansweredMessages above 0", name, i+1)
		}
	}
	c.instances(name, s.Instances)
}

// graph checks the steps together: all can be reached, and a turn cannot go round for ever
// without anybody choosing.
func (c *checker) graph(w *Workflow) {
	reachable := w.Reachable()
	for name, step := range w.Steps {
		if !slices.Contains(reachable, name) {
			c.wrong([]any{"steps", name}, "step %s cannot be reached from %s", name, w.Entry)
		}
		seen := map[string]bool{}
		for at := step; at.Next != ""; at = w.Steps[at.Next] {
			if seen[at.Name] {
				c.wrong([]any{"steps", name, "next"}, "step %s: its next steps go round and never end", name)
				break
			}
			seen[at.Name] = true
		}
	}
}
