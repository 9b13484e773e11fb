// Package ownership is the matrix of who may do what to whose state (contract SO-8), as a table,
// and the places at which it is tried.
package ownership

// Actor is who tries.
type Actor string

// The actors.
const (
	Owner        Actor = "owning agent"
	Other        Actor = "other agent"
	Memory       Actor = "memory service"
	Orchestrator Actor = "orchestrator"
)

// Tier is whose state it is.
type Tier string

// The tiers.
const (
	AgentTier        Tier = "AGENT"
	MemoryTier       Tier = "MEMORY"
	OrchestratorTier Tier = "ORCHESTRATOR"
	SharedTier       Tier = "SHARED"
)

// Verb is what is tried.
type Verb string

// The verbs. An update is a write that the owner is asked for; a write is not. Beyond is a read past
// what the actor's scope allows: of a session or a trace of which it has no turn.
const (
	Read    Verb = "read"
	Write   Verb = "write"
	Update  Verb = "update"
	Delete  Verb = "delete"
	Persist Verb = "persist"
	Create  Verb = "create"
	Beyond  Verb = "read beyond its scope"
)

// Cell is a field of the matrix.
type Cell struct {
	Actor Actor
	Tier  Tier
	Verb  Verb
}

// Matrix says what may be done; what is not in it may not. Of the memory service the owner is
// itself, and of ORCHESTRATOR state it sees the ids in its requests and no more.
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
