// Package ownership is the matrix of who may do what to which state (contract SO-8), as a table, and the places
// at which it is tested.
package ownership

// Actor is the process that tries.
type Actor string

// The actors.
const (
	Owner        Actor = "owning agent"
	Other        Actor = "other agent"
	Memory       Actor = "memory service"
	Orchestrator Actor = "orchestrator"
)

// Tier is the owner of the state.
type Tier string

// The tiers.
const (
	AgentTier        Tier = "AGENT"
	MemoryTier       Tier = "MEMORY"
	OrchestratorTier Tier = "ORCHESTRATOR"
	SharedTier       Tier = "SHARED"
)

// Verb is the attempted operation.
type Verb string

// The verbs. An update asks the owner to write; a write does not. Beyond is a read outside the scope of the
// actor: of a session or a trace that is not of its turn.
const (
	Read    Verb = "read"
	Write   Verb = "write"
	Update  Verb = "update"
	Delete  Verb = "delete"
	Persist Verb = "persist"
	Create  Verb = "create"
	Beyond  Verb = "read beyond its scope"
)

// Cell is a cell of the matrix.
type Cell struct {
	Actor Actor
	Tier  Tier
	Verb  Verb
}

// Matrix holds the allowed cells; all others are forbidden. The memory service owns MEMORY state, and of
// ORCHESTRATOR state it sees only the ids in its requests.
var Matrix = map[Cell]bool{
	{Owner, AgentTier, Read}: true, {Owner, AgentTier, Write}: true, {Owner, AgentTier, Delete}: true, {Owner, AgentTier, Persist}: false,
	{Owner, MemoryTier, Read}: true, {Owner, MemoryTier, Update}: true, {Owner, MemoryTier, Write}: false,
	{Owner, OrchestratorTier, Read}: true, {Owner, OrchestratorTier, Write}: false,
	{Owner, SharedTier, Read}: true, {Owner, SharedTier, Write}: true,

	{Other, AgentTier, Read}: false, {Other, AgentTier, Write}: false,
	{Other, MemoryTier, Read}: true, {Other, MemoryTier, Update}: true, {Other, MemoryTier, Beyond}: false, {Other, MemoryTier, Write}: false,
	{Other, OrchestratorTier, Read}: true, {Other, OrchestratorTier, Beyond}: false, {Other, OrchestratorTier, Write}: false,
	{Other, SharedTier, Read}: true, {Other, SharedTier, Write}: false,

	{Memory, AgentTier, Read}: false, {Memory, AgentTier, Write}: false,
	{Memory, MemoryTier, Read}: true, {Memory, MemoryTier, Persist}: true, {Memory, MemoryTier, Delete}: true,
	{Memory, OrchestratorTier, Write}: false,

	{Orchestrator, AgentTier, Read}: true, {Orchestrator, AgentTier, Write}: false,
	{Orchestrator, MemoryTier, Read}: true, {Orchestrator, MemoryTier, Write}: false,
	{Orchestrator, OrchestratorTier, Create}: true, {Orchestrator, OrchestratorTier, Read}: true,
	{Orchestrator, SharedTier, Read}: true, {Orchestrator, SharedTier, Write}: false,
}
