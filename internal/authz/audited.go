package authz

import (
	"github.com/troupe-dev/troupe/internal/audit"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// AuditKind returns the kind of the audit entry that each call of a method creates (guarantee S19). The entry contains the
// caller and the result. ok is false for methods that create no entry, which includes all methods of an ordinary
// turn.
func AuditKind(method string) (audit.Kind, bool) {
	kind, ok := auditKinds[method]
	return kind, ok
}

// auditKinds maps unary methods to the kind of their audit entry.
var auditKinds = map[string]audit.Kind{
	troupev1.OrchestratorService_PauseAgent_FullMethodName:      audit.Admin,
	troupev1.OrchestratorService_ResumeAgent_FullMethodName:     audit.Admin,
	troupev1.OrchestratorService_StartInstance_FullMethodName:   audit.Admin,
	troupev1.OrchestratorService_DrainInstance_FullMethodName:   audit.Admin,
	troupev1.OrchestratorService_QuarantineAgent_FullMethodName: audit.Admin,
	troupev1.OrchestratorService_ReleaseAgent_FullMethodName:    audit.Admin,
	troupev1.OrchestratorService_ReplayTrace_FullMethodName:     audit.Admin,

	troupev1.SessionService_PauseSession_FullMethodName:     audit.Admin,
	troupev1.SessionService_CloseSession_FullMethodName:     audit.Admin,
	troupev1.SessionService_ResumeSession_FullMethodName:    audit.Admin,
	troupev1.SessionService_ConfigureSession_FullMethodName: audit.Admin,
	troupev1.SessionService_SaveSession_FullMethodName:      audit.Admin,
	troupev1.SessionService_CompactSession_FullMethodName:   audit.Admin,
	troupev1.SessionService_ClearSession_FullMethodName:     audit.Admin,
	troupev1.SessionService_DeleteSession_FullMethodName:    audit.Admin,
	troupev1.SessionService_EraseUser_FullMethodName:        audit.Admin,

	troupev1.LifecycleService_Startup_FullMethodName:  audit.Lifecycle,
	troupev1.LifecycleService_Shutdown_FullMethodName: audit.Lifecycle,
	troupev1.LifecycleService_Pause_FullMethodName:    audit.Lifecycle,
	troupev1.LifecycleService_Resume_FullMethodName:   audit.Lifecycle,
}
