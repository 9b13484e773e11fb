package authz

import (
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/troupe-dev/troupe/internal/identity"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Sets of roles.
var (
	everyone          = []identity.Role{identity.Client, identity.Admin, identity.Orchestrator, identity.Memory, identity.Worker}
	users             = []identity.Role{identity.Client, identity.Admin}
	turnCallers       = []identity.Role{identity.Client, identity.Admin, identity.Worker} // a worker within its own turn
	operators         = []identity.Role{identity.Admin}
	orchestrators     = []identity.Role{identity.Orchestrator}
	lifecycleManagers = []identity.Role{identity.Orchestrator, identity.Admin}
	workers           = []identity.Role{identity.Worker} // with the credential of a turn
	stepCallers       = []identity.Role{identity.Orchestrator, identity.Worker}
)

// table maps each method to the roles that may call it.
var table = map[string][]identity.Role{
	healthpb.Health_Check_FullMethodName:                                 everyone,
	healthpb.Health_List_FullMethodName:                                  everyone,
	healthpb.Health_Watch_FullMethodName:                                 everyone,
	reflection.ServerReflection_ServerReflectionInfo_FullMethodName:      operators,
	reflectionalpha.ServerReflection_ServerReflectionInfo_FullMethodName: operators,

	troupev1.OrchestratorService_Orchestrate_FullMethodName:      turnCallers,
	troupev1.OrchestratorService_WatchTrace_FullMethodName:       turnCallers,
	troupev1.OrchestratorService_GetTrace_FullMethodName:         turnCallers,
	troupev1.OrchestratorService_CancelTrace_FullMethodName:      turnCallers,
	troupev1.OrchestratorService_ListTraces_FullMethodName:       users,
	troupev1.OrchestratorService_ListAgents_FullMethodName:       users,
	troupev1.OrchestratorService_ListWorkflows_FullMethodName:    users,
	troupev1.OrchestratorService_GetWorkflow_FullMethodName:      users,
	troupev1.OrchestratorService_ListInstances_FullMethodName:    operators,
	troupev1.OrchestratorService_DescribeInstance_FullMethodName: operators,
	troupev1.OrchestratorService_PauseAgent_FullMethodName:       operators,
	troupev1.OrchestratorService_ResumeAgent_FullMethodName:      operators,
	troupev1.OrchestratorService_StartInstance_FullMethodName:    operators,
	troupev1.OrchestratorService_DrainInstance_FullMethodName:    operators,
	troupev1.OrchestratorService_ListDecisions_FullMethodName:    operators,
	troupev1.OrchestratorService_ReplayTrace_FullMethodName:      operators,
	troupev1.OrchestratorService_QuarantineAgent_FullMethodName:  operators,
	troupev1.OrchestratorService_ReleaseAgent_FullMethodName:     operators,

	troupev1.SessionService_GetSession_FullMethodName:       users,
	troupev1.SessionService_ListMessages_FullMethodName:     users,
	troupev1.SessionService_ListRounds_FullMethodName:       users,
	troupev1.SessionService_ListSessions_FullMethodName:     users,
	troupev1.SessionService_GetSessionState_FullMethodName:  users,
	troupev1.SessionService_ListArtifacts_FullMethodName:    users,
	troupev1.SessionService_GetArtifact_FullMethodName:      users,
	troupev1.SessionService_PauseSession_FullMethodName:     users,
	troupev1.SessionService_CloseSession_FullMethodName:     users,
	troupev1.SessionService_ResumeSession_FullMethodName:    users,
	troupev1.SessionService_CompactSession_FullMethodName:   users,
	troupev1.SessionService_ClearSession_FullMethodName:     users,
	troupev1.SessionService_DeleteSession_FullMethodName:    users,
	troupev1.SessionService_SearchMemory_FullMethodName:     users,
	troupev1.SessionService_EraseUser_FullMethodName:        users,
	troupev1.SessionService_ConfigureSession_FullMethodName: users,
	troupev1.SessionService_SaveSession_FullMethodName:      users,

	troupev1.LifecycleService_Startup_FullMethodName:    lifecycleManagers,
	troupev1.LifecycleService_Shutdown_FullMethodName:   lifecycleManagers,
	troupev1.LifecycleService_Pause_FullMethodName:      lifecycleManagers,
	troupev1.LifecycleService_Resume_FullMethodName:     lifecycleManagers,
	troupev1.LifecycleService_GetState_FullMethodName:   lifecycleManagers,
	troupev1.LifecycleService_GetMetrics_FullMethodName: lifecycleManagers,
	troupev1.LifecycleService_OwnsState_FullMethodName:  lifecycleManagers,
	troupev1.LifecycleService_WatchState_FullMethodName: lifecycleManagers,

	troupev1.AgentService_ExecuteStep_FullMethodName:    orchestrators,
	troupev1.AgentService_ReplayStep_FullMethodName:     orchestrators,
	troupev1.AgentService_ProvideEntries_FullMethodName: orchestrators,
	troupev1.AgentService_Summarize_FullMethodName:      orchestrators,

	troupev1.MemoryService_BeginTurn_FullMethodName:      orchestrators,
	troupev1.MemoryService_ReleaseTurn_FullMethodName:    orchestrators,
	troupev1.MemoryService_FailTurn_FullMethodName:       orchestrators,
	troupev1.MemoryService_ListSessions_FullMethodName:   orchestrators,
	troupev1.MemoryService_UpdateSession_FullMethodName:  orchestrators,
	troupev1.MemoryService_CompactSession_FullMethodName: orchestrators,
	troupev1.MemoryService_ClearSession_FullMethodName:   orchestrators,
	troupev1.MemoryService_DeleteSession_FullMethodName:  orchestrators,
	troupev1.MemoryService_EraseUser_FullMethodName:      orchestrators,

	troupev1.MemoryService_RenewTurn_FullMethodName:     stepCallers,
	troupev1.MemoryService_LoadHistory_FullMethodName:   stepCallers,
	troupev1.MemoryService_GetSession_FullMethodName:    stepCallers,
	troupev1.MemoryService_GetState_FullMethodName:      stepCallers,
	troupev1.MemoryService_SearchMemory_FullMethodName:  stepCallers,
	troupev1.MemoryService_GetArtifact_FullMethodName:   stepCallers,
	troupev1.MemoryService_ListArtifacts_FullMethodName: stepCallers,
	troupev1.MemoryService_LoadJournal_FullMethodName:   stepCallers,
	troupev1.MemoryService_LoadRounds_FullMethodName:    stepCallers,
	troupev1.MemoryService_GetRecording_FullMethodName:  stepCallers, // a worker needs it to replay a step

	troupev1.MemoryService_Journal_FullMethodName:        workers,
	troupev1.MemoryService_CommitStep_FullMethodName:     workers,
	troupev1.MemoryService_UpdateState_FullMethodName:    workers,
	troupev1.MemoryService_PutArtifact_FullMethodName:    workers,
	troupev1.MemoryService_DeleteArtifact_FullMethodName: workers,

	// Configuration belongs to no turn, so the certificate of the caller is enough.
	troupev1.MemoryService_GetConfig_FullMethodName: stepCallers,
	troupev1.MemoryService_PutConfig_FullMethodName: workers,

	// The conformance service is not served in a mesh, so only operators may call it.
	troupev1.ConformanceService_MakeInstance_FullMethodName: operators,
	troupev1.ConformanceService_DropInstance_FullMethodName: operators,
}
