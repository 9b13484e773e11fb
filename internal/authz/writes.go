package authz

import (
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// writtenKeys maps each method that writes state to its key in the ownership rules. A rejected call of such a
// method is an attempt to write another owner's state (contract SO-8, SO-12).
var writtenKeys = map[string]string{
	troupev1.MemoryService_BeginTurn_FullMethodName:      "history",
	troupev1.MemoryService_ReleaseTurn_FullMethodName:    "history",
	troupev1.MemoryService_FailTurn_FullMethodName:       "history",
	troupev1.MemoryService_RenewTurn_FullMethodName:      "history",
	troupev1.MemoryService_Journal_FullMethodName:        "history",
	troupev1.MemoryService_CommitStep_FullMethodName:     "history",
	troupev1.MemoryService_CompactSession_FullMethodName: "history",
	troupev1.MemoryService_ClearSession_FullMethodName:   "history",
	troupev1.MemoryService_DeleteSession_FullMethodName:  "history",
	troupev1.MemoryService_EraseUser_FullMethodName:      "history",
	troupev1.MemoryService_UpdateSession_FullMethodName:  "memory",
	troupev1.MemoryService_UpdateState_FullMethodName:    "memory",
	troupev1.MemoryService_PutArtifact_FullMethodName:    "memory",
	troupev1.MemoryService_DeleteArtifact_FullMethodName: "memory",
	troupev1.MemoryService_PutConfig_FullMethodName:      "config",

	troupev1.OrchestratorService_Orchestrate_FullMethodName:     "context",
	troupev1.OrchestratorService_CancelTrace_FullMethodName:     "context",
	troupev1.OrchestratorService_PauseAgent_FullMethodName:      "routing",
	troupev1.OrchestratorService_ResumeAgent_FullMethodName:     "routing",
	troupev1.OrchestratorService_StartInstance_FullMethodName:   "routing",
	troupev1.OrchestratorService_DrainInstance_FullMethodName:   "routing",
	troupev1.OrchestratorService_QuarantineAgent_FullMethodName: "routing",
	troupev1.OrchestratorService_ReleaseAgent_FullMethodName:    "routing",
}

// WrittenState returns the key and the owner of the state that a method writes. ok is false if the method writes
// no state.
func WrittenState(method string) (key string, owner ownership.Owner, ok bool) {
	key, ok = writtenKeys[method]
	if !ok {
		return "", "", false
	}
	owner, _ = ownership.OwnerOf(key)
	return key, owner, true
}
