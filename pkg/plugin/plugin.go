// Package plugin has the small plugins: ContextWatch, RateLimit, Reflection and ToolLog. Each is a struct with settings,
// and a function makes the plugin from it. Plugins with types of their own are packages below this one.
package plugin

// The names of the plugins.
const (
	ContextWatchName = "contextwatch"
	RateLimitName    = "ratelimit"
	ReflectionName   = "reflection"
	ToolLogName      = "toollog"
)
