package rate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Class is a group of methods. The calls of one caller to the methods of a class share a bucket.
type Class string

// The classes.
const (
	Turns      Class = "turns"      // start or replay a turn
	Watches    Class = "watches"    // follow a trace
	Reads      Class = "reads"      // read something
	Writes     Class = "writes"     // change a session or a trace
	Operations Class = "operations" // calls of operators
	Probes     Class = "probes"     // health and reflection
	Failures   Class = "failures"   // failed authentications of one address; not the class of a method
	Streams    Class = "streams"    // all calls of one address, before authentication; not the class of a method
	Resets     Class = "resets"     // streams that one address resets; not the class of a method
	Mesh       Class = "mesh"       // calls of workers to the memory service
)

// tenantClass returns the class whose limit applies to all callers of a tenant together.
func tenantClass(class Class) Class { return "tenant-" + class }

// Table maps each class to its limit. A missing class has no limit.
type Table map[Class]Limit

// Defaults returns the limits of one caller at one replica. A file can override them. They are far above what two
// cores can serve, so they stop a runaway loop but no regular work.
func Defaults() Table {
	return Table{
		Turns:      {1000, 2000},
		Watches:    {1000, 2000},
		Reads:      {2000, 4000},
		Writes:     {1000, 2000},
		Operations: {100, 200},
		Probes:     {200, 400},
		Failures:   {5, 100},
		Streams:    {3000, 6000},
		Resets:     {1000, 2000},

		tenantClass(Turns):      {4000, 8000},
		tenantClass(Watches):    {4000, 8000},
		tenantClass(Reads):      {8000, 16000},
		tenantClass(Writes):     {4000, 8000},
		tenantClass(Operations): {400, 800},
	}
}

// InternalDefaults returns the limits of the memory service. A file can override them. One limit applies to all
// workers of an agent together, because these share one name, and one to each tenant. On two cores it takes 16
// callers without a pause to reach them. So a worker with 16 concurrent steps is not slowed down, and a
// compromised worker leaves room for others. Failed authentications have no limit: workers may share an address,
// and one of them could lock out the others.
func InternalDefaults() Table { return Table{Mesh: {10_000, 20_000}} }

// Load reads a table from a YAML file, such as `turns: {rate: 20, burst: 40}`. Classes that the file omits keep
// their default. The file may contain only classes that have a default. Without a file Load returns the defaults.
// An error names the file and the class.
func Load(file string, defaults Table) (Table, error) {
	if file == "" {
		return defaults, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	table, err := parse(text, defaults)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return table, nil
}

func parse(text []byte, defaults Table) (Table, error) {
	var limits Table
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&limits); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	table := maps.Clone(defaults)
	for _, class := range slices.Sorted(maps.Keys(limits)) {
		if _, ok := table[class]; !ok {
			return nil, fmt.Errorf("%q is no class; there are %s", class, strings.Join(classNames(table), ", "))
		}
		if err := limits[class].validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", class, err)
		}
		table[class] = limits[class]
	}
	return table, nil
}

func classNames(t Table) (all []string) {
	for class := range t {
		all = append(all, string(class))
	}
	slices.Sort(all)
	return all
}

// classForMethod returns the class of a method. All services inside the mesh share one class. A method without a
// class of its own counts as an operation, the class with the lowest limit.
func classForMethod(method string) Class {
	if class, ok := classes[method]; ok {
		return class
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if slices.Contains(internalServices, service) {
		return Mesh
	}
	return Operations
}

// internalServices are the services that only processes of the mesh call.
var internalServices = []string{
	troupev1.MemoryService_ServiceDesc.ServiceName,
	troupev1.LifecycleService_ServiceDesc.ServiceName,
	troupev1.AgentService_ServiceDesc.ServiceName,
	troupev1.ConformanceService_ServiceDesc.ServiceName,
}

var classes = map[string]Class{
	healthpb.Health_Check_FullMethodName:                                 Probes,
	healthpb.Health_List_FullMethodName:                                  Probes,
	healthpb.Health_Watch_FullMethodName:                                 Probes,
	reflection.ServerReflection_ServerReflectionInfo_FullMethodName:      Probes,
	reflectionalpha.ServerReflection_ServerReflectionInfo_FullMethodName: Probes,

	troupev1.OrchestratorService_Orchestrate_FullMethodName:      Turns,
	troupev1.OrchestratorService_ReplayTrace_FullMethodName:      Turns,
	troupev1.OrchestratorService_WatchTrace_FullMethodName:       Watches,
	troupev1.OrchestratorService_GetTrace_FullMethodName:         Reads,
	troupev1.OrchestratorService_ListTraces_FullMethodName:       Reads,
	troupev1.OrchestratorService_ListAgents_FullMethodName:       Reads,
	troupev1.OrchestratorService_ListWorkflows_FullMethodName:    Reads,
	troupev1.OrchestratorService_GetWorkflow_FullMethodName:      Reads,
	troupev1.OrchestratorService_CancelTrace_FullMethodName:      Writes,
	troupev1.OrchestratorService_ListInstances_FullMethodName:    Operations,
	troupev1.OrchestratorService_DescribeInstance_FullMethodName: Operations,
	troupev1.OrchestratorService_PauseAgent_FullMethodName:       Operations,
	troupev1.OrchestratorService_QuarantineAgent_FullMethodName:  Operations,
	troupev1.OrchestratorService_ReleaseAgent_FullMethodName:     Operations,
	troupev1.OrchestratorService_ResumeAgent_FullMethodName:      Operations,
	troupev1.OrchestratorService_StartInstance_FullMethodName:    Operations,
	troupev1.OrchestratorService_DrainInstance_FullMethodName:    Operations,
	troupev1.OrchestratorService_ListDecisions_FullMethodName:    Operations,

	troupev1.SessionService_GetSession_FullMethodName:       Reads,
	troupev1.SessionService_ListMessages_FullMethodName:     Reads,
	troupev1.SessionService_ListRounds_FullMethodName:       Reads,
	troupev1.SessionService_ListSessions_FullMethodName:     Reads,
	troupev1.SessionService_GetSessionState_FullMethodName:  Reads,
	troupev1.SessionService_ListArtifacts_FullMethodName:    Reads,
	troupev1.SessionService_GetArtifact_FullMethodName:      Reads,
	troupev1.SessionService_SearchMemory_FullMethodName:     Reads,
	troupev1.SessionService_PauseSession_FullMethodName:     Writes,
	troupev1.SessionService_CloseSession_FullMethodName:     Writes,
	troupev1.SessionService_ResumeSession_FullMethodName:    Writes,
	troupev1.SessionService_CompactSession_FullMethodName:   Writes,
	troupev1.SessionService_ClearSession_FullMethodName:     Writes,
	troupev1.SessionService_DeleteSession_FullMethodName:    Writes,
	troupev1.SessionService_EraseUser_FullMethodName:        Writes,
	troupev1.SessionService_ConfigureSession_FullMethodName: Writes,
	troupev1.SessionService_SaveSession_FullMethodName:      Writes,
}
