package execution

// The limits and defaults of steps. The gRPC API uses the same numbers.
const (
	DefaultPriority = 5 // when a request sets none (contract OC-28); priorities are 0 to MaxPriority
	MaxPriority     = 10

	MaxTasks     = 16      // tasks of a plan
	MaxTaskBytes = 4 << 10 // bytes

	DefaultProfile            = "default"
	MaxTurnMetadata           = 32       // pairs
	MaxTurnMetadataKeyBytes   = 64       // bytes
	MaxTurnMetadataValueBytes = 1024     // bytes
	MaxTurnMetadataBytes      = 16 << 10 // bytes of all keys and values together

	MaxObservations = 64        // observations of a result (guarantee S9)
	MaxPending      = 64        // waiting calls of one turn
	MaxAnswerBytes  = 256 << 10 // bytes of the answer to a waiting call

	MaxEntries = 1000 // trace entries of earlier turns that a turn can read (CO-68)
)
