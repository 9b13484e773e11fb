// Package ownership contains the matrix of who may access which state (contract SO-8), and the layers at which the
// matrix is tested.
package ownership

// Actor is the process that attempts the access.
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

// The verbs. An update asks the owner to write, whereas a write changes the state directly. ReadBeyondScope reads
// a session or a trace that does not belong to the actor's turn.
const (
	Read            Verb = "read"
	Write           Verb = "write"
	Update          Verb = "update"
	Delete          Verb = "delete"
	Persist         Verb = "persist"
	Create          Verb = "create"
	ReadBeyondScope Verb = "read beyond its scope"
)

// Cell is a cell of the matrix: an actor, a tier and a verb.
type Cell struct {
	Actor Actor
	Tier  Tier
	Verb  Verb
}

// Matrix holds the allowed cells. All other cells are forbidden. The memory service owns MEMORY state. It sees
// only those parts of ORCHESTRATOR state that are ids in its requests.
var Matrix = map[Cell]bool{
	{Owner, AgentTier, Read}: true, {Owner, AgentTier, Write}: true, {Owner, AgentTier, Delete}: true, {Owner, AgentTier, Persist}: false,
	{Owner, MemoryTier, Read}: true, {Owner, MemoryTier, Update}: true, {Owner, MemoryTier, Write}: false,
	{Owner, OrchestratorTier, Read}: true, {Owner, OrchestratorTier, Write}: false,
	{Owner, SharedTier, Read}: true, {Owner, SharedTier, Write}: true,

	{Other, AgentTier, Read}: false, {Other, AgentTier, Write}: false,
	{Other, MemoryTier, Read}: true, {Other, MemoryTier, Update}: true, {Other, MemoryTier, ReadBeyondScope}: false, {Other, MemoryTier, Write}: false,
	{Other, OrchestratorTier, Read}: true, {Other, OrchestratorTier, ReadBeyondScope}: false, {Other, OrchestratorTier, Write}: false,
	{Other, SharedTier, Read}: true, {Other, SharedTier, Write}: false,

	{Memory, AgentTier, Read}: false, {Memory, AgentTier, Write}: false,
	{Memory, MemoryTier, Read}: true, {Memory, MemoryTier, Persist}: true, {Memory, MemoryTier, Delete}: true,
	{Memory, OrchestratorTier, Write}: false,

	{Orchestrator, AgentTier, Read}: true, {Orchestrator, AgentTier, Write}: false,
	{Orchestrator, MemoryTier, Read}: true, {Orchestrator, MemoryTier, Write}: false,
	{Orchestrator, OrchestratorTier, Create}: true, {Orchestrator, OrchestratorTier, Read}: true,
	{Orchestrator, SharedTier, Read}: true, {Orchestrator, SharedTier, Write}: false,
}
