package execution

// Tools lists the tools of the agent that a step may use (nil means all). The orchestrator decides this (contract
// OC-13). The model can only request a tool call.
type Tools struct {
	Names []string // best match first
}
