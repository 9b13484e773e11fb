package execution

// Tools are those of its agent that a step may use. The orchestrator decides that (contract
// OC-13); a model's call for a tool is a request. Nil: the step may use all.
type Tools struct {
	Names []string // those that fit the step best first
}
