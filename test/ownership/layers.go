package ownership

// Layer is a layer that rejects forbidden accesses even without the other layers.
type Layer string

// The layers. Network policies are a fifth layer. They prevent connections and are checked with the manifests in
// deploy/k8s.
const (
	SDK      Layer = "sdk"      // in the process of the agent
	Services Layer = "services" // at their ports, by certificate, token and credential of a turn
	Redis    Layer = "redis"    // by its users
	Etcd     Layer = "etcd"     // by the common name of the certificate
)

// The reasons why a cell cannot be tested at a layer.
const (
	reasonNoAgent         = "who hosts no agent does not use the SDK"
	reasonNoName          = "the SDK has no name for what is another's: State, Memory and Trace of a turn are its own"
	reasonInRAM           = "AGENT state is in the RAM of a worker; Redis has nothing of it"
	reasonAllRead         = "all read what is wanted of instances: it tells the memory service and workers which agents are shut out"
	reasonOwnRegistration = "etcd does not look at what a worker writes into its own registration; where others look, it can write nothing"
)

// UntriedReasons maps a layer and a forbidden cell to the reason why the cell cannot be tested there. Every other
// forbidden cell is tried at the layer and must be rejected.
//
// Redis holds MEMORY and SHARED state under m:, and ORCHESTRATOR state under o:. etcd holds the registrations of
// AGENT (which also name the protocol of SHARED), the desired state of ORCHESTRATOR, and the data generation of
// MEMORY.
var UntriedReasons = map[Layer]map[Cell]string{
	SDK: {
		{Other, AgentTier, Read}: reasonNoName, {Other, AgentTier, Write}: reasonNoName,
		{Other, MemoryTier, ReadBeyondScope}: reasonNoName, {Other, OrchestratorTier, ReadBeyondScope}: reasonNoName,
		{Memory, AgentTier, Read}: reasonNoAgent, {Memory, AgentTier, Write}: reasonNoAgent, {Memory, OrchestratorTier, Write}: reasonNoAgent,
		{Orchestrator, AgentTier, Write}: reasonNoAgent, {Orchestrator, MemoryTier, Write}: reasonNoAgent, {Orchestrator, SharedTier, Write}: reasonNoAgent,
	},
	Services: {},
	Redis: {
		{Other, AgentTier, Read}: reasonInRAM, {Other, AgentTier, Write}: reasonInRAM,
		{Memory, AgentTier, Read}: reasonInRAM, {Memory, AgentTier, Write}: reasonInRAM, {Orchestrator, AgentTier, Write}: reasonInRAM,
	},
	Etcd: {
		{Other, OrchestratorTier, ReadBeyondScope}: reasonAllRead,
		{Owner, AgentTier, Persist}:                reasonOwnRegistration,
	},
}
