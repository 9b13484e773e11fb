package failure

// The names of the facts that the failure of a run has in addition to the facts of its cause (contract OC-20).
const (
	FactStage = "stage"         // initialize, plan, route, execute or aggregate
	FactTrace = "trace_id"      // trace of the turn
	FactRoot  = "root_trace_id" // root trace of the run, the same in all its turns (OC-10)
)

// WithRun returns err as the failure of a run in the given stage. Mode, message, facts and cause stay the same. If
// a nested run failed, the trace of the outer run replaces the trace of the nested one.
func WithRun(stage, traceID string, err error) *Error {
	return FromError(err).With(FactStage, stage).With(FactTrace, traceID)
}

// Recoverable reports whether the run may succeed if it is tried again later. This depends only on the mode.
func (e *Error) Recoverable() bool { return e.Mode.Retryable() && !e.Mode.Terminal() }

// runText returns the stage and the trace of a failed run (empty for all other errors).
func (e *Error) runText() string {
	stage, trace := e.Facts[FactStage], e.Facts[FactTrace]
	if stage == "" || trace == "" {
		return ""
	}
	return " (stage " + stage + ", trace " + trace + ")"
}
