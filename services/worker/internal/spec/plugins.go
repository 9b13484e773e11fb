package spec

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/manifest"
	gate "github.com/troupe-dev/troupe/internal/trust"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/plugin/compaction"
	"github.com/troupe-dev/troupe/pkg/plugin/contextwatch"
	"github.com/troupe-dev/troupe/pkg/plugin/guardrails"
	"github.com/troupe-dev/troupe/pkg/plugin/ratelimit"
	"github.com/troupe-dev/troupe/pkg/plugin/reflection"
	"github.com/troupe-dev/troupe/pkg/plugin/toollog"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

// pluginNames are the plugins that an agent can have by name, sorted.
var pluginNames = []string{
	approval.Name, compaction.Name, contextwatch.Name, guardrails.Name, ratelimit.Name, reflection.Name, toollog.Name, trust.Name,
}

// The settings of plugins. Each has the fields of the plugin's Config that a file can have.
type (
	reflectionSettings struct {
		Every int `yaml:"every"`
	}
	compactionSettings struct {
		Above   float64 `yaml:"above"`
		AtLeast int     `yaml:"atLeast"`
		Keep    int     `yaml:"keep"`
	}
	contextwatchSettings struct {
		At []float64 `yaml:"at"`
	}
	ratelimitSettings struct {
		ModelCalls limitSettings `yaml:"modelCalls"`
		ToolCalls  limitSettings `yaml:"toolCalls"`
		Wait       time.Duration `yaml:"wait"`
	}
	limitSettings struct {
		Agent   int `yaml:"agent"`
		Session int `yaml:"session"`
	}
	toollogSettings struct {
		Arguments bool `yaml:"arguments"`
		Results   bool `yaml:"results"`
	}
	approvalSettings struct {
		Never   []string      `yaml:"never"`
		Always  []string      `yaml:"always"`
		Timeout time.Duration `yaml:"timeout"`
	}
	guardrailsSettings struct {
		Name   string        `yaml:"name"`
		Input  checkSettings `yaml:"input"`
		Output checkSettings `yaml:"output"`
		Answer string        `yaml:"answer"`
	}
	checkSettings struct {
		MaxLength int      `yaml:"maxLength"`
		Forbid    []string `yaml:"forbid"`
		Topics    []string `yaml:"topics"`
	}
	trustSettings struct {
		Level       gate.Level `yaml:"level"`
		Admins      []string   `yaml:"admins"`
		Allow       []string   `yaml:"allow"`
		Clients     string     `yaml:"clients"`     // file of a trust.FileStore; empty: in RAM
		InvitesFile string     `yaml:"invitesFile"` // a code a line, for a code is a secret
		Judge       string     `yaml:"judge"`       // a model; empty: nobody judges strangers
		Policy      string     `yaml:"policy"`
		TrustActor  bool       `yaml:"trustActor"`
	}
)

// plugins makes what is declared: each item is a name, or one name with its settings.
func (b *builder) plugins(declared []yaml.Node) []hook.Plugin {
	var all []hook.Plugin
	for i := range declared {
		name, ok := pluginName(&declared[i])
		switch {
		case !ok:
			b.errorf([]any{"plugins", i}, "plugins[%d]: want the name of a plugin, or {name: settings}; there are %s", i, strings.Join(pluginNames, ", "))
			continue
		case !slices.Contains(pluginNames, name):
			there := "there are " + strings.Join(pluginNames, ", ")
			if near := manifest.Nearest(name, pluginNames); near != "" {
				there = fmt.Sprintf("did you mean %q?", near)
			}
			b.errorf([]any{"plugins", i}, "plugins[%d]: there is no plugin %q; %s", i, name, there)
			continue
		}
		made, err := b.plugin(name, func(v any) error { return b.doc.Decode(v, "plugins", i, name) })
		if e, ok := errors.AsType[*failure.Error](err); ok {
			b.errorf([]any{"plugins", i, name}, "plugins[%d].%s%s", i, name, inYAML(e.Message))
			continue
		}
		if err != nil {
			b.wrong = append(b.wrong, err)
			continue
		}
		if slices.ContainsFunc(all, func(p hook.Plugin) bool { return p.Name == made.Name }) {
			b.errorf([]any{"plugins", i}, "plugins[%d]: there is a plugin %q before it; leave one out", i, made.Name)
			continue
		}
		all = append(all, made)
	}
	return all
}

// pluginName is that of an item.
func pluginName(item *yaml.Node) (string, bool) {
	item = resolved(item)
	if item.Kind == yaml.MappingNode && len(item.Content) == 2 {
		item = item.Content[0]
	}
	return item.Value, item.Kind == yaml.ScalarNode && item.Value != ""
}

// plugin makes one. Its errors are failures whose message begins with the field of the
// plugin's Config that is wrong, or those of decode.
func (b *builder) plugin(name string, decode func(any) error) (hook.Plugin, error) {
	switch name {
	case reflection.Name:
		return with(decode, func(s reflectionSettings) (hook.Plugin, error) { return reflection.New(reflection.Config(s)) })
	case compaction.Name:
		return with(decode, func(s compactionSettings) (hook.Plugin, error) { return compaction.New(compaction.Config(s)) })
	case contextwatch.Name:
		return with(decode, func(s contextwatchSettings) (hook.Plugin, error) { return contextwatch.New(contextwatch.Config(s)) })
	case ratelimit.Name:
		return with(decode, func(s ratelimitSettings) (hook.Plugin, error) {
			return ratelimit.New(ratelimit.Config{ModelCalls: ratelimit.Limit(s.ModelCalls), ToolCalls: ratelimit.Limit(s.ToolCalls), Wait: s.Wait})
		})
	case toollog.Name:
		return with(decode, func(s toollogSettings) (hook.Plugin, error) {
			return toollog.New(toollog.Config{Log: b.Log, Arguments: s.Arguments, Results: s.Results})
		})
	case approval.Name: // without an Asker: whoever goes on with the turn answers
		return with(decode, func(s approvalSettings) (hook.Plugin, error) {
			return approval.New(approval.Config{Never: s.Never, Always: s.Always, Timeout: s.Timeout})
		})
	case guardrails.Name:
		return with(decode, func(s guardrailsSettings) (hook.Plugin, error) {
			return guardrails.New(guardrails.Config{Name: s.Name, Input: s.Input.checks(), Output: s.Output.checks(), Answer: s.Answer, Log: b.Log})
		})
	default:
		return with(decode, b.trust)
	}
}

// with makes a plugin of its settings.
func with[T any](decode func(any) error, build func(T) (hook.Plugin, error)) (hook.Plugin, error) {
	var settings T
	if err := decode(&settings); err != nil {
		return hook.Plugin{}, err
	}
	return build(settings)
}

func (s checkSettings) checks() (all []guardrails.Check) {
	if s.MaxLength != 0 {
		all = append(all, guardrails.MaxLength(s.MaxLength))
	}
	if s.Forbid != nil {
		all = append(all, guardrails.Forbid(s.Forbid...))
	}
	if s.Topics != nil {
		all = append(all, guardrails.Topics(s.Topics...))
	}
	return all
}

func (b *builder) trust(s trustSettings) (hook.Plugin, error) {
	c := trust.Config{Log: b.Log, TrustActor: s.TrustActor, Gate: gate.Config{
		Agent: b.doc.Name, Level: s.Level, Admins: s.Admins, Allow: s.Allow, Policy: s.Policy,
	}}
	if s.Judge != "" {
		model, err := b.Models.Model(s.Judge)
		if err != nil {
			return hook.Plugin{}, failure.Newf(failure.ModeOf(err), "spec.Build", "Judge: %s", failure.Plain(err))
		}
		c.Gate.Judge = gate.ModelJudge(model)
	}
	if s.InvitesFile != "" {
		text, err := os.ReadFile(s.InvitesFile)
		if err != nil {
			return hook.Plugin{}, failure.New(failure.AgentValidation, "spec.Build", "InvitesFile: it cannot be read; want a file with a code a line").Because(err)
		}
		c.Gate.Invites = strings.Fields(string(text))
	}
	if s.Clients != "" {
		store, err := gate.OpenFile(s.Clients)
		if err != nil {
			return hook.Plugin{}, failure.Newf(failure.ModeOf(err), "spec.Build", "Clients: %s", failure.Plain(err)).Because(err)
		}
		c.Gate.Store = store
	}
	return trust.New(c)
}

// configField is how a plugin names a field of its Config at the beginning of a message, and
// a check of guardrails behind it.
var configField = regexp.MustCompile(`^((?:[A-Z]\w*\.?)+)((?:\[\d+\]: (maxLength|forbid|topics)\b)?)`)

// inYAML is a message about a Config with the names that the fields have in YAML, to be put
// behind the name of a plugin.
func inYAML(message string) string {
	at := configField.FindStringSubmatchIndex(message)
	if at == nil {
		return ": " + message
	}
	var path strings.Builder
	for field := range strings.SplitSeq(message[:at[3]], ".") {
		runes := []rune(field)
		runes[0] = unicode.ToLower(runes[0])
		path.WriteString("." + string(runes))
	}
	if at[6] >= 0 {
		path.WriteString("." + message[at[6]:at[7]])
	}
	return path.String() + message[at[1]:]
}
