package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/services/worker/internal/plugins"
)

// buildPlugins creates the declared plugins. Each item is a name, or one name with its settings.
func (b *builder) buildPlugins(declared []yaml.Node) []hook.Plugin {
	var all []hook.Plugin
	known := plugins.Names()
	catalog := plugins.Catalog{Agent: b.doc.Name, Models: b.Models, Log: b.Log}
	for i := range declared {
		name, ok := pluginName(&declared[i])
		switch {
		case !ok:
			b.errorf([]any{"plugins", i}, "plugins[%d]: want the name of a plugin, or {name: settings}; there are %s", i, strings.Join(known, ", "))
			continue
		case !slices.Contains(known, name):
			there := "there are " + strings.Join(known, ", ")
			if near := manifest.Nearest(name, known); near != "" {
				there = fmt.Sprintf("did you mean %q?", near)
			}
			b.errorf([]any{"plugins", i}, "plugins[%d]: there is no plugin %q; %s", i, name, there)
			continue
		}
		made, err := catalog.Plugin(name, func(v any) error { return b.doc.Decode(v, "plugins", i, name) })
		if e, ok := errors.AsType[*failure.Error](err); ok {
			b.errorf([]any{"plugins", i, name}, "plugins[%d].%s%s", i, name, plugins.InYAML(e.Message))
			continue
		}
		if err != nil {
			b.errs = append(b.errs, err)
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

// pluginName returns the name in a list item, and whether there is one.
func pluginName(item *yaml.Node) (string, bool) {
	item = resolveAlias(item)
	if item.Kind == yaml.MappingNode && len(item.Content) == 2 {
		item = item.Content[0]
	}
	return item.Value, item.Kind == yaml.ScalarNode && item.Value != ""
}
