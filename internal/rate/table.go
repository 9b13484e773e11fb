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

// Class is a kind of call; calls of one class are counted together.
type Class string

// The classes.
const (
	Turns      Class = "turns"      // that begin a turn, or replay one
	Watches    Class = "watches"    // that follow a trace
	Reads      Class = "reads"      // that show something
	Writes     Class = "writes"     // that change a session or a trace
	Operations Class = "operations" // of operators
	Probes     Class = "probes"     // health and reflection
	Failures   Class = "failures"   // calls of one address whose sender is not proven; no method's class
	Streams    Class = "streams"    // calls of one address, of all classes and before who calls is known; no method's class
	Resets     Class = "resets"     // streams that one address takes back; no method's class
	Mesh       Class = "mesh"       // of workers, at the memory service
)

// ofTenant is the row of the table for all callers of a tenant together.
func ofTenant(class Class) Class { return "tenant-" + class }

// Table has the limit of each class; without a limit, there is none.
type Table map[Class]Limit

// Defaults is the table that holds where a file says nothing. It is for one caller on one
// replica, far above what two cores can do: it stops a loop that went mad, and no work.
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

		ofTenant(Turns):      {4000, 8000},
		ofTenant(Watches):    {4000, 8000},
		ofTenant(Reads):      {8000, 16000},
		ofTenant(Writes):     {4000, 8000},
		ofTenant(Operations): {400, 800},
	}
}

// Inner is the table of the memory service where a file says nothing: for the workers of an agent
// together, since they have one name, and each tenant. On two cores 16 callers that do nothing
// else make as many calls: one worker of 16 steps at once is not held up, and one that was taken
// over leaves room for others. What is short of a proof is not counted as at a port for clients:
// workers may share an address, and one of them would shut out all.
func Inner() Table { return Table{Mesh: {10_000, 20_000}} }

// Load reads a table from a YAML file, such as `turns: {rate: 20, burst: 40}`. Classes that it
// does not name are as in the defaults, and it names none that they lack; no file is the defaults.
// An error names file and class.
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
	var told Table
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&told); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	table := maps.Clone(defaults)
	for _, class := range slices.Sorted(maps.Keys(told)) {
		if _, ok := table[class]; !ok {
			return nil, fmt.Errorf("%q is no class; there are %s", class, strings.Join(names(table), ", "))
		}
		if err := told[class].check(); err != nil {
			return nil, fmt.Errorf("%s: %w", class, err)
		}
		table[class] = told[class]
	}
	return table, nil
}

func names(t Table) (all []string) {
	for class := range t {
		all = append(all, string(class))
	}
	slices.Sort(all)
	return all
}

// classOf is the class of a method. Services that only processes of the mesh call are of one; a
// method that nobody put into a class is counted with those that are rarest.
func classOf(method string) Class {
	if class, ok := classes[method]; ok {
		return class
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if slices.Contains(inner, service) {
		return Mesh
	}
	return Operations
}

// inner are the services that are not for clients.
var inner = []string{
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
	troupev1.OrchestratorService_DrainInstance_FullMethodName:    Operations,
	troupev1.OrchestratorService_ListDecisions_FullMethodName:    Operations,

	troupev1.SessionService_GetSession_FullMethodName:      Reads,
	troupev1.SessionService_ListMessages_FullMethodName:    Reads,
	troupev1.SessionService_ListSessions_FullMethodName:    Reads,
	troupev1.SessionService_GetSessionState_FullMethodName: Reads,
	troupev1.SessionService_ListArtifacts_FullMethodName:   Reads,
	troupev1.SessionService_GetArtifact_FullMethodName:     Reads,
	troupev1.SessionService_SearchMemory_FullMethodName:    Reads,
	troupev1.SessionService_PauseSession_FullMethodName:    Writes,
	troupev1.SessionService_ResumeSession_FullMethodName:   Writes,
	troupev1.SessionService_CompactSession_FullMethodName:  Writes,
	troupev1.SessionService_ClearSession_FullMethodName:    Writes,
	troupev1.SessionService_DeleteSession_FullMethodName:   Writes,
	troupev1.SessionService_EraseUser_FullMethodName:       Writes,
}
