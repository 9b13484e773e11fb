package ownership

// Place is a place where a forbidden cell is rejected, even without the other places.
type Place string

// The places. The fifth, NetworkPolicy, prevents connections, and is checked in the manifests in deploy/k8s.
const (
	SDK      Place = "sdk"      // in the process of the agent
	Services Place = "services" // at their ports, by certificate, token and credential of a turn
	Redis    Place = "redis"    // by its users
	Etcd     Place = "etcd"     // by the common name of the certificate
)

// Why a cell cannot be tested at a place.
const (
	noAgent  = "who hosts no agent does not use the SDK"
	noName   = "the SDK has no name for what is another's: State, Memory and Trace of a turn are its own"
	inRAM    = "AGENT state is in the RAM of a worker; Redis has nothing of it"
	allRead  = "all read what is wanted of instances: it tells the memory service and workers which agents are shut out"
	ownWords = "etcd does not look at what a worker writes into its own registration; where others look, it can write nothing"
)

// Untried maps a place and a forbidden cell to the reason why the cell cannot be tested there. Every other
// forbidden cell is tried at the place and must be rejected.
//
// Redis holds MEMORY and SHARED under m:, and ORCHESTRATOR under o:. etcd holds the registrations of AGENT
// (which also name the protocol of SHARED), the desired state of ORCHESTRATOR, and the data generation of
// MEMORY.
var Untried = map[Place]map[Cell]string{
	SDK: {
		{Other, AgentTier, Read}: noName, {Other, AgentTier, Write}: noName,
		{Other, MemoryTier, Beyond}: noName, {Other, OrchestratorTier, Beyond}: noName,
		{Memory, AgentTier, Read}: noAgent, {Memory, AgentTier, Write}: noAgent, {Memory, OrchestratorTier, Write}: noAgent,
		{Orchestrator, AgentTier, Write}: noAgent, {Orchestrator, MemoryTier, Write}: noAgent, {Orchestrator, SharedTier, Write}: noAgent,
	},
	Services: {},
	Redis: {
		{Other, AgentTier, Read}: inRAM, {Other, AgentTier, Write}: inRAM,
		{Memory, AgentTier, Read}: inRAM, {Memory, AgentTier, Write}: inRAM, {Orchestrator, AgentTier, Write}: inRAM,
	},
	Etcd: {
		{Other, OrchestratorTier, Beyond}: allRead,
		{Owner, AgentTier, Persist}:       ownWords,
	},
}
