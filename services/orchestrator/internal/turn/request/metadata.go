package request

import (
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// CheckMetadata limits the total size of all labels of a turn, because they are stored with the trace and sent with
// each step. The .proto file limits each single label.
func CheckMetadata(metadata map[string]string) error {
	size := 0
	for name, value := range metadata {
		size += len(name) + len(value)
	}
	if size <= execution.MaxTurnMetadataBytes {
		return nil
	}
	return failure.Newf(failure.UserInvalidInput, "OrchestrateRequest",
		"metadata: its names and values are %d bytes, and may be %d; what is longer belongs into the text, or into an artifact",
		size, execution.MaxTurnMetadataBytes).
		With("fields", "metadata")
}
