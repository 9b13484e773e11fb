package api

import (
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// labelled bounds all labels of a turn together; each of them is bounded by the .proto. They are
// stored with the trace, and sent with each step.
func labelled(metadata map[string]string) error {
	size := 0
	for name, value := range metadata {
		size += len(name) + len(value)
	}
	if size <= memory.MaxMetadataBytes {
		return nil
	}
	return failure.Newf(failure.UserInvalidInput, "OrchestrateRequest",
		"metadata: its names and values are %d bytes, and may be %d; what is longer belongs into the text, or into an artifact", size, memory.MaxMetadataBytes).
		With("fields", "metadata")
}
