//go:build !linux

package process

// disableCoreDumps does nothing, because production meshes run on Linux.
func disableCoreDumps() error { return nil }
