package failure

import (
	"strings"

	"google.golang.org/grpc/codes"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Mode names a way in which work can fail. It is the name of a troupe.v1.FailureMode
// in lower case and without its prefix, and in upper case the reason on the wire.
type Mode string

// The modes of contract OC-23.
const (
	Unknown             Mode = "" // not known, or not to be told
	AgentValidation     Mode = "agent_validation"
	AgentTimeout        Mode = "agent_timeout"
	AgentLogic          Mode = "agent_logic"
	AgentContract       Mode = "agent_contract"
	AgentState          Mode = "agent_state"
	SystemNetwork       Mode = "system_network"
	SystemTimeout       Mode = "system_timeout"
	SystemCrash         Mode = "system_crash"
	SystemOOM           Mode = "system_oom"
	SystemDisk          Mode = "system_disk"
	ResourceTool        Mode = "resource_tool"
	ResourceAPI         Mode = "resource_api"
	ResourceMemory      Mode = "resource_memory"
	ResourceQuota       Mode = "resource_quota"
	ResourceCircuit     Mode = "resource_circuit"
	PolicySecurity      Mode = "policy_security"
	PolicyBudget        Mode = "policy_budget"
	PolicyAllowlist     Mode = "policy_allowlist"
	PolicyRateLimit     Mode = "policy_rate_limit"
	UserInvalidInput    Mode = "user_invalid_input"
	UserCancelled       Mode = "user_cancelled"
	UserPermission      Mode = "user_permission"
	UserUnauthenticated Mode = "user_unauthenticated"
	PartialToolFailures Mode = "partial_tool_failures"
	PartialStepFailures Mode = "partial_step_failures"
	PartialTimeout      Mode = "partial_timeout"
)

// The modes that running on a mesh adds.
const (
	NotFound         Mode = "not_found"
	KeyReused        Mode = "key_reused"
	SessionBusy      Mode = "session_busy"
	SessionFull      Mode = "session_full"
	Fenced           Mode = "fenced"
	TurnNotOpen      Mode = "turn_not_open"
	BaseMismatch     Mode = "base_mismatch"
	StateViolation   Mode = "state_violation"
	NoWorker         Mode = "no_worker"
	InstanceFull     Mode = "instance_full"
	InstancePaused   Mode = "instance_paused"
	InstanceDraining Mode = "instance_draining"
	TraceOrphaned    Mode = "trace_orphaned"

	Nondeterminism    Mode = "nondeterminism"
	UnknownOutcome    Mode = "unknown_outcome"
	SessionClosed     Mode = "session_closed"
	SessionDeleted    Mode = "session_deleted"
	RevisionMismatch  Mode = "revision_mismatch"
	SlowConsumer      Mode = "slow_consumer"
	AttemptsExhausted Mode = "attempts_exhausted"
	Overloaded        Mode = "overloaded"
)

// row is what the mesh does about a mode. Retryable: the same call may succeed later or
// elsewhere. Terminal: it must not be tried again, whatever a retry policy says.
type row struct {
	code      codes.Code
	retryable bool
	terminal  bool
}

// table is the whole policy of the mesh on failures (contract OC-24, appendix B).
var table = map[Mode]row{
	Unknown: {codes.Internal, false, false},

	AgentValidation:     {codes.FailedPrecondition, false, false},
	AgentTimeout:        {codes.DeadlineExceeded, true, false},
	AgentLogic:          {codes.Internal, false, false},
	AgentContract:       {codes.Internal, false, true},
	AgentState:          {codes.FailedPrecondition, false, false},
	SystemNetwork:       {codes.Unavailable, true, false},
	SystemTimeout:       {codes.DeadlineExceeded, true, false},
	SystemCrash:         {codes.Internal, false, true},
	SystemOOM:           {codes.ResourceExhausted, false, true},
	SystemDisk:          {codes.ResourceExhausted, false, false},
	ResourceTool:        {codes.Unavailable, true, false},
	ResourceAPI:         {codes.Unavailable, true, false},
	ResourceMemory:      {codes.ResourceExhausted, false, false},
	ResourceQuota:       {codes.ResourceExhausted, false, false},
	ResourceCircuit:     {codes.Unavailable, true, false},
	PolicySecurity:      {codes.PermissionDenied, false, true},
	PolicyBudget:        {codes.ResourceExhausted, false, true},
	PolicyAllowlist:     {codes.PermissionDenied, false, true},
	PolicyRateLimit:     {codes.ResourceExhausted, true, false},
	UserInvalidInput:    {codes.InvalidArgument, false, false},
	UserCancelled:       {codes.Canceled, false, true},
	UserPermission:      {codes.PermissionDenied, false, false},
	UserUnauthenticated: {codes.Unauthenticated, false, false},
	PartialToolFailures: {codes.Internal, true, false},
	PartialStepFailures: {codes.Internal, true, false},
	PartialTimeout:      {codes.DeadlineExceeded, true, false},

	NotFound:         {codes.NotFound, false, false},
	KeyReused:        {codes.AlreadyExists, false, false},
	SessionBusy:      {codes.Aborted, true, false},
	SessionFull:      {codes.ResourceExhausted, false, false},
	Fenced:           {codes.Aborted, false, false},
	TurnNotOpen:      {codes.FailedPrecondition, false, false},
	BaseMismatch:     {codes.Aborted, false, false},
	StateViolation:   {codes.PermissionDenied, false, false},
	NoWorker:         {codes.Unavailable, false, false},
	InstanceFull:     {codes.ResourceExhausted, true, false},
	InstancePaused:   {codes.Unavailable, true, false},
	InstanceDraining: {codes.Unavailable, true, false},
	TraceOrphaned:    {codes.Unavailable, true, false},

	Nondeterminism:    {codes.Internal, false, true},
	UnknownOutcome:    {codes.Unknown, false, true},
	SessionClosed:     {codes.FailedPrecondition, false, false},
	SessionDeleted:    {codes.FailedPrecondition, false, true},
	RevisionMismatch:  {codes.Aborted, false, false},
	SlowConsumer:      {codes.ResourceExhausted, true, false},
	AttemptsExhausted: {codes.Internal, false, true},
	Overloaded:        {codes.ResourceExhausted, true, false},
}

// Retryable reports whether the same call may succeed later or on another instance.
func (m Mode) Retryable() bool { return table[m].retryable }

// Terminal reports whether it must not be tried again.
func (m Mode) Terminal() bool { return table[m].terminal }

// Partial reports whether what was done before such a failure may be of use.
func (m Mode) Partial() bool {
	switch m {
	case PartialToolFailures, PartialStepFailures, PartialTimeout, AgentTimeout, SystemTimeout, ResourceQuota:
		return true
	default:
		return false
	}
}

// Reason is the mode as google.rpc.ErrorInfo names it, for example SESSION_BUSY.
func (m Mode) Reason() string { return strings.ToUpper(string(m)) }

const wirePrefix = "FAILURE_MODE_"

func (m Mode) wire() troupev1.FailureMode {
	return troupev1.FailureMode(troupev1.FailureMode_value[wirePrefix+m.Reason()])
}

func modeFromWire(m troupev1.FailureMode) Mode {
	if m == troupev1.FailureMode_FAILURE_MODE_UNSPECIFIED {
		return Unknown
	}
	return Mode(strings.ToLower(strings.TrimPrefix(m.String(), wirePrefix)))
}
