package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/internal/retry"
)

// declaration is the spec field of a document of kind Workflow.
type declaration struct {
	Description   string                     `yaml:"description"`
	Entry         string                     `yaml:"entry"`
	HistoryWindow int                        `yaml:"historyWindow"`
	Limits        limitsDeclaration          `yaml:"limits"`
	Timeout       time.Duration              `yaml:"timeout"`
	Steps         map[string]stepDeclaration `yaml:"steps"`
}

// stepDeclaration is a step as written in YAML, with a field for each key of the document.
type stepDeclaration struct {
	Agent     string             `yaml:"agent"`
	Workflow  string             `yaml:"workflow"`
	Next      string             `yaml:"next"`
	Routes    []string           `yaml:"routes"`
	Default   string             `yaml:"default"`
	Rules     []ruleDeclaration  `yaml:"rules"`
	End       bool               `yaml:"end"`
	Parallel  []string           `yaml:"parallel"`
	Join      string             `yaml:"join"`
	Then      []edgeDeclaration  `yaml:"then"`
	OnError   onErrorDeclaration `yaml:"onError"`
	Limit     int                `yaml:"limit"`
	Otherwise string             `yaml:"otherwise"`

	Instances instancesDeclaration `yaml:"instances"`
	Choose    chooseDeclaration    `yaml:"choose"`
	Tools     toolsDeclaration     `yaml:"tools"`

	Task        string           `yaml:"task"`
	Expects     string           `yaml:"expects"`
	Constraints []string         `yaml:"constraints"`
	Plan        *planDeclaration `yaml:"plan"`
}

type edgeDeclaration struct {
	When struct {
		ConfidenceBelow   float64 `yaml:"confidenceBelow"`
		ObservationsBelow int     `yaml:"observationsBelow"`
		Failed            bool    `yaml:"failed"`
	} `yaml:"when"`
	Next string `yaml:"next"`
}

type onErrorDeclaration struct {
	Retry    *retryDeclaration `yaml:"retry"`
	Continue bool              `yaml:"continue"`
	Fallback string            `yaml:"fallback"`
}

type retryDeclaration struct {
	Policy   string        `yaml:"policy"`
	Attempts int           `yaml:"attempts"`
	Backoff  time.Duration `yaml:"backoff"`
}

type ruleDeclaration struct {
	When struct {
		ReplyTo            string `yaml:"replyTo"`
		UnansweredMessages int    `yaml:"unansweredMessages"`
	} `yaml:"when"`
	Next string `yaml:"next"`
}

// Limits and defaults of a workflow declaration.
const (
	maxWindow          = 100 // messages that agents may see; use summaries for longer histories
	maxSteps           = 50  // of a turn
	maxStepEntries     = 20  // how often a turn may enter one step
	maxRetries         = 10
	defaultRetryPolicy = "exponential"
	maxBackoff         = time.Minute
	minTimeout         = time.Second // shortest timeout of a turn; the same as for callers
	maxTimeout         = 10 * time.Minute
)

// Set holds the workflows of a mesh. It must not be changed after Load.
type Set struct {
	byName       map[string]*Workflow
	defaultName  string
	descriptions map[string]string // descriptions of the agents that are declared in the same folder
}

// Load reads the documents of kind Workflow from a folder. name is the default workflow (if empty, the first in
// the order of names). The error lists all problems, each with its file and line.
func Load(files fs.FS, name string) (*Set, error) {
	documents, err := manifest.Load(files)
	if err != nil {
		return nil, err
	}
	agents := map[string]bool{}
	set := &Set{byName: map[string]*Workflow{}, defaultName: name, descriptions: map[string]string{}}
	var problems []error
	for _, d := range manifest.Select(documents, manifest.KindAgent) {
		agents[d.Name] = true
		var description string
		problems = append(problems, d.Decode(&description, "description"))
		set.descriptions[d.Name] = description
	}
	built := unresolvedSet{}
	for _, d := range documents {
		if d.Kind != manifest.KindWorkflow {
			continue
		}
		p, err := buildWorkflow(d, agents)
		problems = append(problems, err)
		built[d.Name] = p
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, d := range manifest.Select(documents, manifest.KindWorkflow) {
		flow, err := built.flatten(d.Name)
		problems = append(problems, err)
		set.byName[d.Name] = flow
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if name == "" && len(set.byName) > 0 {
		set.defaultName = set.All()[0].Name
	}
	if name != "" && set.byName[name] == nil {
		return nil, errors.New(set.NotFoundText(name))
	}
	return set, nil
}

// Find returns the workflow with the given name. The empty name stands for the default workflow.
func (s *Set) Find(name string) (*Workflow, bool) {
	if name == "" {
		name = s.defaultName
	}
	flow, ok := s.byName[name]
	return flow, ok
}

// Description returns the description from the document of an agent (empty when the folder has none). Models see
// this description, because the author of the agent wrote it. The description in a registration is only a claim of
// the worker (guarantee S14).
func (s *Set) Description(agent string) string { return s.descriptions[agent] }

// NotFoundText returns a message that no workflow has the given name, with a list of the existing ones.
func (s *Set) NotFoundText(name string) string {
	if len(s.byName) == 0 {
		return "no workflow is declared here"
	}
	return fmt.Sprintf("no workflow is called %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(s.byName)), ", "))
}

// UsesAgent reports whether a step of any workflow runs the agent.
func (s *Set) UsesAgent(agent string) bool {
	for _, flow := range s.byName {
		if slices.Contains(flow.Agents(), agent) {
			return true
		}
	}
	return false
}

// All returns the workflows, ordered by name.
func (s *Set) All() []*Workflow {
	var all []*Workflow
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		all = append(all, s.byName[name])
	}
	return all
}

// buildWorkflow checks a declaration and returns its workflow. Nested workflows are not resolved yet.
func buildWorkflow(d manifest.Document, agents map[string]bool) (*unresolvedWorkflow, error) {
	var spec declaration
	if err := d.Decode(&spec); err != nil {
		return nil, err
	}
	c := &checker{document: d, spec: spec}
	flow := &Workflow{
		Name: d.Name, Description: spec.Description, Entry: spec.Entry, Steps: map[string]Step{},
		HistoryWindow: cmp.Or(spec.HistoryWindow, DefaultWindow), MaxSteps: cmp.Or(spec.Limits.Steps, DefaultSteps),
		Timeout: spec.Timeout,
	}
	c.checkRange([]any{"historyWindow"}, "historyWindow", flow.HistoryWindow, maxWindow)
	c.checkRange([]any{"limits", "steps"}, "limits.steps", flow.MaxSteps, maxSteps)
	flow.Budget = c.checkLimits(spec.Limits)
	if spec.Timeout != 0 && (spec.Timeout < minTimeout || spec.Timeout > maxTimeout) {
		c.addProblem([]any{"timeout"}, "timeout: %s is not between %s and %s", spec.Timeout, minTimeout, maxTimeout)
	}
	c.checkTarget([]any{"entry"}, "entry", spec.Entry)
	p := &unresolvedWorkflow{checker: c, flow: flow, nestedNames: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(spec.Steps)) {
		s := spec.Steps[name]
		c.checkStep(name, s, agents)
		flow.Steps[name] = s.toStep(name)
		if s.Workflow != "" {
			p.nestedNames[name] = s.Workflow
		}
	}
	if len(c.problems) == 0 {
		c.checkGraph(flow)
	}
	return p, c.joinedProblems()
}

// toStep converts the declaration to a step.
func (s stepDeclaration) toStep(name string) Step {
	step := Step{
		Name: name, Agent: s.Agent, Next: s.Next, Routes: s.Routes, Default: s.Default, End: s.End, Instances: s.Instances.toPolicy(),
		Parallel: s.Parallel, Join: s.Join, MaxEntries: s.Limit, Otherwise: s.Otherwise,
		OnError: OnError{Continue: s.OnError.Continue, Fallback: s.OnError.Fallback},
		Choose:  s.Choose.toPolicy(s), Tools: s.Tools.toPolicy(),
		Task: strings.TrimSpace(s.Task), Expects: strings.TrimSpace(s.Expects), Constraints: s.Constraints, Plan: s.Plan.toPlan(),
	}
	for _, r := range s.Rules {
		step.Rules = append(step.Rules, Rule{ReplyTo: r.When.ReplyTo, MinUnanswered: r.When.UnansweredMessages, Next: r.Next})
	}
	for _, e := range s.Then {
		step.Then = append(step.Then, Edge{When: Condition(e.When), Next: e.Next})
	}
	if retry := s.OnError.Retry; retry != nil {
		step.OnError.Policy, _ = retry.toPolicy() // the checker reports its error
	}
	return step
}

// toPolicy returns the named retry policy with the declared numbers.
func (r retryDeclaration) toPolicy() (retry.Policy, error) {
	p, err := retry.ParsePolicy(cmp.Or(r.Policy, defaultRetryPolicy))
	p.Retries, p.FirstPause = cmp.Or(r.Attempts, p.Retries), cmp.Or(r.Backoff, p.FirstPause)
	return p, err
}
