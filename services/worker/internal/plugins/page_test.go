package plugins_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/worker/internal/plugins"
)

const repositoryRoot = "../../../.."

// Names lists every plugin: each package of pkg/plugin, and each plugin file in it.
func TestNames_ListsEveryPluginPackage(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(repositoryRoot, "pkg/plugin"))
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".go")
		if name != "internal" && name != "plugin" && !strings.HasSuffix(name, "_test") {
			found = append(found, name)
		}
	}
	require.Equal(t, plugins.Names(), found)
}

// The documentation page about plugins has a section for each plugin, which names every setting.
func TestPage_DescribesEveryPluginAndSetting(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repositoryRoot, "docs/plugins.md"))
	require.NoError(t, err)
	parts := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n## ") {
		if name, _, ok := strings.Cut(strings.SplitN(part, "\n", 2)[0], ": "); ok {
			parts[name] = part
		}
	}
	for _, name := range plugins.Names() {
		require.Contains(t, parts, name)
		for _, setting := range settingNames(t, name) {
			require.Regexp(t, `\b`+regexp.QuoteMeta(setting)+`\b`, parts[name], "plugin %s", name)
		}
		delete(parts, name)
	}
	require.Empty(t, parts, "plugins that do not exist")
}

// All documentation pages that list the plugins list all of them.
func TestPages_ListEveryPlugin(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repositoryRoot, "CHANGELOG.md"))
	require.NoError(t, err)
	found := regexp.MustCompile(`plugins: ([a-z, ]+)\.`).FindStringSubmatch(string(text))
	require.NotNil(t, found)
	listed := strings.Split(found[1], ", ")
	slices.Sort(listed)
	require.Equal(t, plugins.Names(), listed)
}

// settingNames returns the YAML names of a plugin's settings.
func settingNames(t *testing.T, name string) (names []string) {
	t.Helper()
	stop := errors.New("only the type is wanted")
	_, err := plugins.Catalog{}.Plugin(name, func(v any) error {
		names = fieldNames(reflect.TypeOf(v))
		return stop
	})
	require.ErrorIs(t, err, stop)
	require.NotEmpty(t, names, name)
	return names
}

func fieldNames(typ reflect.Type) (names []string) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return nil
	}
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name != "" {
			names = append(names, name)
		}
		names = append(names, fieldNames(field.Type)...)
	}
	return names
}
