// Package plugin is the folder of the plugins that come with the SDK: each is a package whose
// New makes a hook.Plugin. They are made of handlers only, as an author's own are, and know
// neither the loop nor the agent that runs them (CO-7).
package plugin
