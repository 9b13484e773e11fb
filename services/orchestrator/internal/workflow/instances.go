package workflow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// instancesDeclaration declares how the instance for a step is selected.
type instancesDeclaration struct {
	Strategy   string         `yaml:"strategy"`
	Weights    map[string]int `yaml:"weights"`
	Priorities map[string]int `yaml:"priorities"`
	Instance   string         `yaml:"instance"`
	Fallback   string         `yaml:"fallback"`
	Needs      []string       `yaml:"needs"`
}

// Limits of the weights and priorities of versions.
const (
	maxVersions = 16
	maxPriority = 1000
)

// fallbackStrategies are the strategies that may select an instance when the named instance cannot take a step.
var fallbackStrategies = []selection.Strategy{selection.RoundRobin, selection.LoadBalanced, selection.Sticky}

func (d instancesDeclaration) toPolicy() selection.Policy {
	return selection.Policy{
		Strategy: selection.Strategy(d.Strategy), Weights: d.Weights, Priorities: d.Priorities,
		Instance: d.Instance, Fallback: selection.Strategy(d.Fallback), Needs: d.Needs,
	}
}

// checkInstances checks how the instance of a step is selected. Each field belongs to one strategy.
func (c *checker) checkInstances(step string, d instancesDeclaration) {
	at := func(keys ...any) []any { return append([]any{"steps", step, "instances"}, keys...) }
	strategy := cmp.Or(selection.Strategy(d.Strategy), selection.RoundRobin)
	if !slices.Contains(selection.Strategies(), strategy) {
		c.addProblem(at("strategy"), "instances.strategy: unknown strategy %q; %s", d.Strategy, suggestStrategies(d.Strategy, selection.Strategies()))
		return
	}
	for _, f := range []struct {
		name     string
		set      bool
		strategy selection.Strategy
	}{
		{"weights", d.Weights != nil, selection.Weighted},
		{"priorities", d.Priorities != nil, selection.Priority},
		{"instance", d.Instance != "", selection.Manual},
		{"fallback", d.Fallback != "", selection.Manual},
		{"needs", d.Needs != nil, selection.Capability},
	} {
		if f.set && strategy != f.strategy {
			c.addProblem(at(f.name), "instances.%s: is for strategy %s; this is %s", f.name, f.strategy, strategy)
		}
	}
	switch strategy {
	case selection.Weighted:
		c.checkVersionValues(at, strategy, "weights", d.Weights, 0, 100)
		sum := 0
		for _, weight := range d.Weights {
			sum += weight
		}
		if sum > 100 {
			c.addProblem(at("weights"), "instances.weights: they are percentages and add up to %d; at most 100 are there", sum)
		}
	case selection.Priority:
		c.checkVersionValues(at, strategy, "priorities", d.Priorities, -maxPriority, maxPriority)
	case selection.Manual:
		if d.Instance == "" {
			c.addProblem(at(), "instances: strategy manual wants the id of an instance as instance")
		}
		if d.Fallback != "" && !slices.Contains(fallbackStrategies, selection.Strategy(d.Fallback)) {
			c.addProblem(at("fallback"), "instances.fallback: unknown strategy %q; %s", d.Fallback, suggestStrategies(d.Fallback, fallbackStrategies))
		}
	case selection.Capability:
		c.checkNeeds(at, "instances", d.Needs)
	default: // has no fields of its own
	}
}

// checkNeeds checks the capabilities that a step needs.
func (c *checker) checkNeeds(at func(...any) []any, of string, needs []string) {
	if len(needs) > registry.MaxCapabilities {
		c.addProblem(at("needs"), "%s.needs: names %d capabilities; at most %d may be named", of, len(needs), registry.MaxCapabilities)
	}
	for i, name := range needs {
		switch {
		case !registry.IsCapability(name):
			c.addProblem(at("needs", i), "%s.needs: %q is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen", of, name)
		case slices.Contains(needs[:i], name):
			c.addProblem(at("needs", i), "%s.needs: %q is named twice", of, name)
		}
	}
}

// checkVersionValues checks the weights or priorities of versions.
func (c *checker) checkVersionValues(at func(...any) []any, strategy selection.Strategy, field string, values map[string]int, least, most int) {
	switch {
	case len(values) == 0:
		c.addProblem(at(), "instances: strategy %s wants %s of versions, such as %s: {v2: 10}", strategy, field, field)
	case len(values) > maxVersions:
		c.addProblem(at(field), "instances.%s: names %d versions; at most %d may be named", field, len(values), maxVersions)
	}
	for _, version := range slices.Sorted(maps.Keys(values)) {
		if v := values[version]; v < least || v > most {
			c.addProblem(at(field, version), "instances.%s.%s: %d is not between %d and %d", field, version, v, least, most)
		}
	}
}

// suggestStrategies suggests strategies in place of an unknown one.
func suggestStrategies(word string, known []selection.Strategy) string {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	if near := manifest.Nearest(word, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "there are " + strings.Join(names, ", ")
}
