package execution

// Tools lists the tools of its agent that a step may use (nil means all). The orchestrator decides this (contract
// OC-13). A tool call of a model is only a request.
type Tools struct {
	Names []string // best match first
}
