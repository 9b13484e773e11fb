package failure

// The facts that a failed run has in addition to those of its cause (contract OC-20).
const (
	FactStage = "stage"         // initialize, plan, route, execute or aggregate
	FactTrace = "trace_id"      // of the turn; nested failures have the same
	FactRoot  = "root_trace_id" // of the whole run, the same in all its turns (OC-10)
)

// WithRun returns err as the failure of a run in one of its stages. Mode, message, facts and cause
// stay. Where a run fails because of a nested one, the trace of the outer run replaces the inner.
func WithRun(stage, traceID string, err error) *Error {
	return FromError(err).With(FactStage, stage).With(FactTrace, traceID)
}

// Recoverable reports whether the same run may succeed later. It follows from the mode.
func (e *Error) Recoverable() bool { return e.Mode.Retryable() && !e.Mode.Terminal() }

// runText names stage and trace of a failed run (empty for all other errors).
func (e *Error) runText() string {
	stage, trace := e.Facts[FactStage], e.Facts[FactTrace]
	if stage == "" || trace == "" {
		return ""
	}
	return " (stage " + stage + ", trace " + trace + ")"
}
