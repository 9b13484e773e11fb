package workflow

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/manifest"
)

// declaration is the spec of a document of kind Workflow.
type declaration struct {
	Description   string                     `yaml:"description"`
	Entry         string                     `yaml:"entry"`
	HistoryWindow int                        `yaml:"historyWindow"`
	Steps         map[string]stepDeclaration `yaml:"steps"`
}

type stepDeclaration struct {
	Agent   string            `yaml:"agent"`
	Next    string            `yaml:"next"`
	Routes  []string          `yaml:"routes"`
	Default string            `yaml:"default"`
	Rules   []ruleDeclaration `yaml:"rules"`
	End     bool              `yaml:"end"`

	Instances instancesDeclaration `yaml:"instances"`
}

type ruleDeclaration struct {
	When struct {
		ReplyTo            string `yaml:"replyTo"`
		UnansweredMessages int    `yaml:"unansweredMessages"`
	} `yaml:"when"`
	Next string `yaml:"next"`
}

// maxWindow is how many messages agents may be shown; more is what summaries are for.
const maxWindow = 100

// Set is the workflows of a mesh. It is not changed after Load.
type Set struct {
	byName   map[string]*Workflow
	fallback string
}

// Load reads the documents of kind Workflow from a folder. The named one is the default; an
// empty name means the first by name. Everything that is wrong is in the one error, each
// line with its file and line.
func Load(files fs.FS, name string) (*Set, error) {
	documents, err := manifest.Load(files)
	if err != nil {
		return nil, err
	}
	agents := map[string]bool{}
	for _, d := range documents {
		if d.Kind == manifest.KindAgent {
			agents[d.Name] = true
		}
	}
	set := &Set{byName: map[string]*Workflow{}, fallback: name}
	var problems []error
	for _, d := range documents {
		if d.Kind != manifest.KindWorkflow {
			continue
		}
		flow, err := build(d, agents)
		problems = append(problems, err)
		set.byName[d.Name] = flow
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if name == "" && len(set.byName) > 0 {
		set.fallback = set.All()[0].Name
	}
	if name != "" && set.byName[name] == nil {
		return nil, fmt.Errorf("no workflow is called %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(set.byName)), ", "))
	}
	return set, nil
}

// Find returns the named workflow, or the default one for the empty name.
func (s *Set) Find(name string) (*Workflow, bool) {
	if name == "" {
		name = s.fallback
	}
	flow, ok := s.byName[name]
	return flow, ok
}

// Names reports whether a step of any workflow runs the agent.
func (s *Set) Names(agent string) bool {
	for _, flow := range s.byName {
		if slices.Contains(flow.Agents(), agent) {
			return true
		}
	}
	return false
}

// All are the workflows, by name.
func (s *Set) All() []*Workflow {
	var all []*Workflow
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		all = append(all, s.byName[name])
	}
	return all
}

// build checks a declaration against itself and the declared agents.
func build(d manifest.Document, agents map[string]bool) (*Workflow, error) {
	var spec declaration
	if err := d.Decode(&spec); err != nil {
		return nil, err
	}
	c := &checker{document: d, spec: spec}
	flow := &Workflow{Name: d.Name, Description: spec.Description, Entry: spec.Entry, Window: spec.HistoryWindow, Steps: map[string]Step{}}
	if flow.Window == 0 {
		flow.Window = DefaultWindow
	}
	if flow.Window < 1 || flow.Window > maxWindow {
		c.wrong([]any{"historyWindow"}, "historyWindow: %d is not between 1 and %d", flow.Window, maxWindow)
	}
	c.target([]any{"entry"}, "entry", spec.Entry)
	for _, name := range slices.Sorted(maps.Keys(spec.Steps)) {
		s := spec.Steps[name]
		c.step(name, s, agents)
		step := Step{Name: name, Agent: s.Agent, Next: s.Next, Routes: s.Routes, Default: s.Default, End: s.End, Instances: s.Instances.policy()}
		for _, r := range s.Rules {
			step.Rules = append(step.Rules, Rule{ReplyTo: r.When.ReplyTo, Unanswered: r.When.UnansweredMessages, Next: r.Next})
		}
		flow.Steps[name] = step
	}
	if len(c.problems) == 0 {
		c.graph(flow)
	}
	return flow, errors.Join(c.problems...)
}
