// Package plugin provides the small plugins: ContextWatch, RateLimit, Reflection and ToolLog. Each is a struct
// with settings, and a function creates the plugin from it. Larger plugins have packages of their own below this
// one.
package plugin

import "time"

// The names of the plugins.
const (
	ContextWatchName = "contextwatch"
	RateLimitName    = "ratelimit"
	ReflectionName   = "reflection"
	ToolLogName      = "toollog"
)

// The reasons of the warnings that the plugins publish.
const (
	ReasonContextFilling   = "CONTEXT_FILLING"   // the context of the model crossed a threshold
	ReasonReflectionFailed = "REFLECTION_FAILED" // the model did not answer; the turn continues without the thought
	ReasonToolLogFailed    = "TOOL_LOG_FAILED"   // a line could not be written
)

// Limits of the plugins.
const (
	DefaultWait   = 10 * time.Second // longest wait of a call, if a RateLimit has no Wait
	MaxLoggedText = 1 << 10          // bytes of a name, of arguments and of a result in a line of a ToolLog
)
