package execution

// Limits and defaults of steps. The gRPC API has the same.
const (
	DefaultPriority = 5 // when a request sets none (contract OC-28); priorities are 0 to MaxPriority
	MaxPriority     = 10

	MaxTasks    = 16      // of a plan
	MaxTaskText = 4 << 10 // bytes

	DefaultProfile   = "default"
	MaxMetadata      = 32   // pairs
	MaxMetadataKey   = 64   // bytes
	MaxMetadataValue = 1024 // bytes

	MaxObservations = 64        // of a result (guarantees S9)
	MaxPending      = 64        // calls of one turn that wait
	MaxAnswer       = 256 << 10 // bytes of the answer to a waiting call
)
