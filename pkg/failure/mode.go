package failure

import (
	"maps"
	"slices"
	"strings"
)

// Mode names a kind of failure. In upper case it is the reason in a google.rpc.ErrorInfo. In upper case with the
// prefix FAILURE_MODE_ it is also a troupe.v1.FailureMode.
type Mode string

// The modes of contract OC-23.
const (
	Unknown             Mode = "" // not known, or not to be disclosed; UNSPECIFIED on the wire and in docs
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

// The modes that only occur in a mesh.
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

// traits holds the properties of a mode. Retryable means that the same call may succeed later or elsewhere.
// Terminal means that the call must not be retried, even if a retry policy would allow it.
type traits struct {
	retryable bool
	terminal  bool
}

// traitsByMode holds the traits of every mode (contract OC-24, appendix B). The gRPC codes of the modes are in
// internal/grpcfailure.
var traitsByMode = map[Mode]traits{
	Unknown: {},

	AgentValidation:     {},
	AgentTimeout:        {retryable: true},
	AgentLogic:          {},
	AgentContract:       {terminal: true},
	AgentState:          {},
	SystemNetwork:       {retryable: true},
	SystemTimeout:       {retryable: true},
	SystemCrash:         {terminal: true},
	SystemOOM:           {terminal: true},
	SystemDisk:          {},
	ResourceTool:        {retryable: true},
	ResourceAPI:         {retryable: true},
	ResourceMemory:      {},
	ResourceQuota:       {},
	ResourceCircuit:     {retryable: true},
	PolicySecurity:      {terminal: true},
	PolicyBudget:        {terminal: true},
	PolicyAllowlist:     {terminal: true},
	PolicyRateLimit:     {retryable: true},
	UserInvalidInput:    {},
	UserCancelled:       {terminal: true},
	UserPermission:      {},
	UserUnauthenticated: {},
	PartialToolFailures: {retryable: true},
	PartialStepFailures: {retryable: true},
	PartialTimeout:      {retryable: true},

	NotFound:         {},
	KeyReused:        {},
	SessionBusy:      {retryable: true},
	SessionFull:      {},
	Fenced:           {},
	TurnNotOpen:      {},
	BaseMismatch:     {},
	StateViolation:   {},
	NoWorker:         {},
	InstanceFull:     {retryable: true},
	InstancePaused:   {retryable: true},
	InstanceDraining: {retryable: true},
	TraceOrphaned:    {retryable: true},

	Nondeterminism:    {terminal: true},
	UnknownOutcome:    {terminal: true},
	SessionClosed:     {},
	SessionDeleted:    {terminal: true},
	RevisionMismatch:  {},
	SlowConsumer:      {retryable: true},
	AttemptsExhausted: {terminal: true},
	Overloaded:        {retryable: true},
}

// Modes returns all modes in alphabetical order, beginning with Unknown.
func Modes() []Mode { return slices.Sorted(maps.Keys(traitsByMode)) }

// Retryable reports whether the same call may succeed later or on another instance.
func (m Mode) Retryable() bool { return traitsByMode[m].retryable }

// Terminal reports whether the call must not be retried.
func (m Mode) Terminal() bool { return traitsByMode[m].terminal }

// Partial reports whether the results from before the failure may still be useful.
func (m Mode) Partial() bool {
	switch m {
	case PartialToolFailures, PartialStepFailures, PartialTimeout, AgentTimeout, SystemTimeout, ResourceQuota:
		return true
	default:
		return false
	}
}

// Reason returns the mode in the form of the reason in a google.rpc.ErrorInfo, for example SESSION_BUSY.
func (m Mode) Reason() string { return strings.ToUpper(string(m)) }
