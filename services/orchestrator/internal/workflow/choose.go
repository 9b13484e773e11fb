package workflow

import (
	"cmp"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// chooseDeclaration declares how a step without an agent chooses among its routes.
type chooseDeclaration struct {
	Strategy   string         `yaml:"strategy"`
	Needs      []string       `yaml:"needs"`
	Priorities map[string]int `yaml:"priorities"`
	Step       string         `yaml:"step"`
}

// toolsDeclaration declares which tools of its agent a step may use.
type toolsDeclaration struct {
	Strategy string   `yaml:"strategy"`
	Needs    []string `yaml:"needs"`
	Names    []string `yaml:"names"`
}

// maxTools is how many tools a step may list.
const maxTools = 64

// The strategies for agents and for tools. The first one is the default (OC-16).
var (
	agentStrategies = []selection.Strategy{selection.Capability, selection.RoundRobin, selection.LoadBalanced, selection.Priority, selection.Manual}
	toolStrategies  = []selection.Strategy{selection.Capability, selection.Manual}
)

func (d chooseDeclaration) isZero() bool {
	return d.Strategy == "" && d.Needs == nil && d.Priorities == nil && d.Step == ""
}

// toPolicy returns the declared policy. A step that chooses uses strategy capability by default.
func (d chooseDeclaration) toPolicy(s stepDeclaration) choice.Policy {
	if s.Agent != "" || len(s.Routes) == 0 {
		return choice.Policy{}
	}
	p := choice.Policy{Strategy: cmp.Or(selection.Strategy(d.Strategy), selection.Capability), Needs: d.Needs, Priorities: d.Priorities}
	if d.Step != "" {
		p.Names = []string{d.Step}
	}
	return p
}

func (d toolsDeclaration) toPolicy() choice.Policy {
	p := choice.Policy{Strategy: selection.Strategy(d.Strategy), Needs: d.Needs, Names: d.Names}
	if p.Strategy != selection.Manual && len(p.Needs) == 0 && len(p.Names) == 0 { // nothing to decide
		return choice.Policy{}
	}
	p.Strategy = cmp.Or(p.Strategy, selection.Capability)
	return p
}

// strategyField is a field of a policy that only one strategy uses.
type strategyField struct {
	name     string
	isSet    bool
	strategy selection.Strategy
}

// checkStrategy checks that the declared strategy exists and that the other declared fields belong to it. It
// returns the strategy (empty when it is unknown).
func (c *checker) checkStrategy(at func(...any) []any, of, named string, known []selection.Strategy, fields ...strategyField) selection.Strategy {
	strategy := cmp.Or(selection.Strategy(named), known[0])
	if !slices.Contains(known, strategy) {
		c.addProblem(at("strategy"), "%s.strategy: unknown strategy %q; %s", of, named, suggestStrategies(named, known))
		return ""
	}
	for _, f := range fields {
		if f.isSet && strategy != f.strategy {
			c.addProblem(at(f.name), "%s.%s: is for strategy %s; this is %s", of, f.name, f.strategy, strategy)
		}
	}
	return strategy
}

// checkChoose checks a step that chooses by strategy.
func (c *checker) checkChoose(in func(...any) []any, name string, s stepDeclaration) {
	at := func(keys ...any) []any { return in(append([]any{"choose"}, keys...)...) }
	d := s.Choose
	switch {
	case s.Workflow != "": // the checker has reported this
		return
	case s.Agent != "" || len(s.Routes) == 0:
		if !d.isZero() {
			c.addProblem(at(), "step %s: choose is for a step with routes and without an agent; an agent chooses itself", name)
		}
		return
	case s.Default != "":
		c.addProblem(in("default"), "step %s: default is for an agent that names none of its routes; without an agent the orchestrator chooses", name)
	}
	if s.Instances.Strategy != "" {
		c.addProblem(in("instances"), "step %s: instances is for a step with an agent", name)
	}
	switch c.checkStrategy(at, "choose", d.Strategy, agentStrategies,
		strategyField{"needs", d.Needs != nil, selection.Capability}, strategyField{"priorities", d.Priorities != nil, selection.Priority},
		strategyField{"step", d.Step != "", selection.Manual}) {
	case selection.Capability:
		c.checkNeeds(at, "choose", d.Needs)
	case selection.Priority:
		if len(d.Priorities) == 0 {
			c.addProblem(at(), "choose: strategy priority wants priorities of routes, such as priorities: {%s: 10}", s.Routes[0])
		}
		for _, step := range slices.Sorted(maps.Keys(d.Priorities)) {
			if !slices.Contains(s.Routes, step) {
				c.addProblem(at("priorities", step), "choose.priorities: %q is not among the routes of step %s", step, name)
			}
			if p := d.Priorities[step]; p < -maxPriority || p > maxPriority {
				c.addProblem(at("priorities", step), "choose.priorities.%s: %d is not between %d and %d", step, p, -maxPriority, maxPriority)
			}
		}
	case selection.Manual:
		if !slices.Contains(s.Routes, d.Step) {
			c.addProblem(at(), "choose: strategy manual wants one of the routes as step; %q is none", d.Step)
		}
	default: // has no fields of its own
	}
}

// checkTools checks which tools a step may use.
func (c *checker) checkTools(in func(...any) []any, name string, s stepDeclaration) {
	at := func(keys ...any) []any { return in(append([]any{"tools"}, keys...)...) }
	d := s.Tools
	switch {
	case d.Strategy == "" && d.Needs == nil && d.Names == nil || s.Workflow != "":
		return
	case s.Agent == "":
		c.addProblem(at(), "step %s: tools is for a step with an agent, for only that has tools", name)
		return
	}
	switch c.checkStrategy(at, "tools", d.Strategy, toolStrategies,
		strategyField{"needs", d.Needs != nil, selection.Capability}, strategyField{"names", d.Names != nil, selection.Manual}) {
	case selection.Capability:
		c.checkNeeds(at, "tools", d.Needs)
	case selection.Manual:
		if len(d.Names) == 0 || len(d.Names) > maxTools {
			c.addProblem(at(), "tools: strategy manual wants names of 1 to %d tools, got %d", maxTools, len(d.Names))
		}
		for i, tool := range d.Names {
			if tool == "" || slices.Contains(d.Names[:i], tool) {
				c.addProblem(at("names", i), "tools.names: %q is empty, or named twice", tool)
			}
		}
	default: // unknown, which is reported
	}
}
