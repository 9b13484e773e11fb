// Package plugins creates the plugins that YAML agents can use by name.
package plugins

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/plugin"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/plugin/compaction"
	"github.com/troupe-dev/troupe/pkg/plugin/guardrails"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

// Catalog creates the plugins of one agent.
type Catalog struct {
	Agent  string       // name of the agent
	Models *llm.Catalog // for plugins that ask a model
	Log    *zap.Logger
}

// pluginNames lists all plugins, sorted.
var pluginNames = []string{
	approval.Name, compaction.Name, plugin.ContextWatchName, guardrails.Name,
	plugin.RateLimitName, plugin.ReflectionName, plugin.ToolLogName, trust.Name,
}

// Names returns the names of all plugins, sorted.
func Names() []string { return slices.Clone(pluginNames) }

// Plugin creates the plugin with the given name. decode fills a struct with the declared settings, and its errors
// are returned unchanged. An unknown name fails with not_found. Invalid settings fail with user_invalid_input or
// agent_validation. Such a message begins with the name of the field, as InYAML expects.
func (c Catalog) Plugin(name string, decode func(any) error) (hook.Plugin, error) {
	switch name {
	case plugin.ReflectionName:
		return decodeAndBuild(decode, func(s reflectionSettings) (hook.Plugin, error) { return plugin.NewReflection(plugin.Reflection(s)) })
	case compaction.Name:
		return decodeAndBuild(decode, func(s compactionSettings) (hook.Plugin, error) { return compaction.New(compaction.Config(s)) })
	case plugin.ContextWatchName:
		return decodeAndBuild(decode, func(s contextwatchSettings) (hook.Plugin, error) {
			return plugin.NewContextWatch(plugin.ContextWatch(s))
		})
	case plugin.RateLimitName:
		return decodeAndBuild(decode, func(s ratelimitSettings) (hook.Plugin, error) {
			return plugin.NewRateLimit(plugin.RateLimit{ModelCalls: plugin.CallLimit(s.ModelCalls), ToolCalls: plugin.CallLimit(s.ToolCalls), Wait: s.Wait})
		})
	case plugin.ToolLogName:
		return decodeAndBuild(decode, func(s toollogSettings) (hook.Plugin, error) {
			return plugin.NewToolLog(plugin.ToolLog{Log: c.Log, Arguments: s.Arguments, Results: s.Results})
		})
	case approval.Name: // no Asker: the answer comes with the next request of the session
		return decodeAndBuild(decode, func(s approvalSettings) (hook.Plugin, error) {
			return approval.New(approval.Config{Never: s.Never, Always: s.Always, Timeout: s.Timeout})
		})
	case guardrails.Name:
		return decodeAndBuild(decode, func(s guardrailsSettings) (hook.Plugin, error) {
			return guardrails.New(guardrails.Config{Name: s.Name, Input: s.Input.newChecks(), Output: s.Output.newChecks(), Answer: s.Answer, Log: c.Log})
		})
	case trust.Name:
		return decodeAndBuild(decode, c.newTrustPlugin)
	default:
		return hook.Plugin{}, failure.Newf(failure.NotFound, "plugins.Plugin", "there is no plugin %q", name)
	}
}

// Settings of the plugins. Each struct has the fields of the plugin's Config that can be set in YAML.
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
		Level       trust.Level `yaml:"level"`
		Admins      []string    `yaml:"admins"`
		Allow       []string    `yaml:"allow"`
		Clients     string      `yaml:"clients"`     // file of a trust.FileStore (empty keeps clients in RAM)
		InvitesFile string      `yaml:"invitesFile"` // file with a code on each line; codes are secrets
		Judge       string      `yaml:"judge"`       // model that judges strangers (empty means that they are not judged)
		Policy      string      `yaml:"policy"`
		TrustActor  bool        `yaml:"trustActor"`
	}
)

// decodeAndBuild decodes the settings of a plugin and creates the plugin with them.
func decodeAndBuild[T any](decode func(any) error, build func(T) (hook.Plugin, error)) (hook.Plugin, error) {
	var settings T
	if err := decode(&settings); err != nil {
		return hook.Plugin{}, err
	}
	return build(settings)
}

func (s checkSettings) newChecks() (all []guardrails.Check) {
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

func (c Catalog) newTrustPlugin(s trustSettings) (hook.Plugin, error) {
	cfg := trust.Config{Log: c.Log, TrustActor: s.TrustActor, Gate: trust.GateConfig{
		Agent: c.Agent, Level: s.Level, Admins: s.Admins, Allow: s.Allow, Policy: s.Policy,
	}}
	if s.Judge != "" {
		model, err := c.Models.Model(s.Judge)
		if err != nil {
			return hook.Plugin{}, failure.Newf(failure.ModeOf(err), "plugins.Plugin", "Judge: %s", failure.PlainMessage(err))
		}
		cfg.Gate.Judge = trust.ModelJudge(model)
	}
	if s.InvitesFile != "" {
		text, err := os.ReadFile(s.InvitesFile)
		if err != nil {
			return hook.Plugin{}, failure.New(failure.AgentValidation, "plugins.Plugin",
				"InvitesFile: it cannot be read; want a file with a code a line").Because(err)
		}
		cfg.Gate.Invites = strings.Fields(string(text))
	}
	if s.Clients != "" {
		store, err := trust.OpenFile(s.Clients)
		if err != nil {
			return hook.Plugin{}, failure.Newf(failure.ModeOf(err), "plugins.Plugin", "Clients: %s", failure.PlainMessage(err)).Because(err)
		}
		cfg.Gate.Store = store
	}
	return trust.New(cfg)
}

// configField matches the name of a Config field at the beginning of a message. In messages of guardrails, the
// name of a check may follow.
var configField = regexp.MustCompile(`^((?:[A-Z]\w*\.?)+)((?:\[\d+\]: (maxLength|forbid|topics)\b)?)`)

// InYAML rewrites the message of an error of Plugin: it replaces the Go names of fields by their YAML names. The
// caller puts the result after the name of the plugin.
func InYAML(message string) string {
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
