package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Model declares a model of an agent with settings beyond its name.
type Model struct {
	Name    string        `yaml:"name"`
	Timeout time.Duration `yaml:"timeout"` // time until its first word, including retries (0 means the timeout of its provider)
	Hedge   *Hedge        `yaml:"hedge"`
}

// Hedge declares a second request that is sent if the first one is slow to answer.
type Hedge struct {
	After time.Duration `yaml:"after"` // how long the first request may be silent
	Model string        `yaml:"model"` // (empty means the same model)
}

// buildModel returns the declared model: a name, a Model, or a list of these. The models of a list are tried in
// order until one succeeds (see llm.Failover).
func (b *builder) buildModel(declared yaml.Node) llm.Model {
	node := resolveAlias(&declared)
	if node.Kind != yaml.SequenceNode {
		return b.buildDeclaredModel(node, "model")
	}
	var chain []llm.Model
	for i := range node.Content {
		if m := b.buildDeclaredModel(resolveAlias(node.Content[i]), "model", i); m != nil {
			chain = append(chain, m)
		}
	}
	switch {
	case len(node.Content) == 0:
		b.errorf([]any{"model"}, "model: the list is empty; name at least one model")
		return nil
	case len(chain) < len(node.Content): // the problem is already recorded
		return nil
	case len(chain) == 1:
		return chain[0]
	}
	m, err := llm.Failover("chain/"+b.doc.Name, chain...)
	if err != nil {
		b.errorf([]any{"model"}, "%s", failure.PlainMessage(err))
	}
	return m
}

// withTemperature returns the model with the declared temperature, if there is one.
func (b *builder) withTemperature(m llm.Model, temperature *float64) llm.Model {
	if temperature == nil || m == nil {
		return m
	}
	if t := *temperature; t != min(max(t, 0), llm.MaxTemperature) { // also rejects NaN
		b.errorf([]any{"temperature"}, "temperature is %v; use 0 to %d, or leave it out for the provider's own", t, llm.MaxTemperature)
		return nil
	}
	return llm.WithTemperature(m, *temperature)
}

// buildDeclaredModel returns the model declared at a node. If the node is invalid, it records the problem and
// returns nil.
func (b *builder) buildDeclaredModel(node *yaml.Node, keys ...any) llm.Model {
	at := nodePath(keys)
	declared := Model{Name: node.Value}
	switch node.Kind {
	case yaml.SequenceNode:
		b.errorf(keys, "%s: want the name of a model, or {name: …}, got a list", at)
		return nil
	case yaml.MappingNode:
		if err := b.doc.Decode(&declared, keys...); err != nil {
			b.errs = append(b.errs, err)
			return nil
		}
		at += ".name"
	default:
	}
	m := b.openModel(declared.Name, at, keys)
	if declared.Timeout < 0 {
		b.errorf(slices.Concat(keys, []any{"timeout"}), "%s.timeout is %s; use a positive duration, or leave it out", nodePath(keys), declared.Timeout)
		return nil
	}
	if declared.Hedge != nil {
		m = b.withHedge(m, declared, keys)
	}
	if m == nil {
		return nil
	}
	return llm.Guarded(llm.Timed(m, declared.Timeout))
}

// openModel opens the model with the given name.
func (b *builder) openModel(name, at string, keys []any) llm.Model {
	if name == "" {
		b.errorf(keys, "%s is missing; the prefixes there are: %s", at, strings.Join(b.Models.Prefixes(), ", "))
		return nil
	}
	m, err := b.Models.Model(name)
	if err != nil {
		b.errorf(keys, "%s", failure.PlainMessage(err))
		return nil
	}
	return m
}

// withHedge returns a model that sends the declared second request.
func (b *builder) withHedge(first llm.Model, declared Model, keys []any) llm.Model {
	h, at := declared.Hedge, nodePath(keys)
	second := first
	if h.Model != "" {
		second = b.openModel(h.Model, at+".hedge.model", slices.Concat(keys, []any{"hedge", "model"}))
	}
	switch after := slices.Concat(keys, []any{"hedge", "after"}); {
	case h.After <= 0:
		b.errorf(after, "%s.hedge.after is %s; say how long the model may say nothing before it is asked a second time, such as 3s", at, h.After)
		return nil
	case declared.Timeout > 0 && declared.Timeout <= h.After:
		b.errorf(after, "%s.hedge.after is %s, and the timeout %s; use a shorter time, otherwise no second request is sent", at, h.After, declared.Timeout)
		return nil
	case first == nil || second == nil:
		return nil
	}
	return llm.Hedged(first, second, h.After)
}

// nodePath returns the path of a node in its document, such as model[1].hedge, for error messages.
func nodePath(keys []any) string {
	var at strings.Builder
	for _, key := range keys {
		switch key := key.(type) {
		case string:
			if at.Len() > 0 {
				at.WriteByte('.')
			}
			at.WriteString(key)
		case int:
			fmt.Fprintf(&at, "[%d]", key)
		}
	}
	return at.String()
}

// resolveAlias returns the node that a YAML alias refers to.
func resolveAlias(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
