package failure

// Facts of the failure of a run, in addition to the facts of its cause (contract OC-20).
const (
	FactStage = "stage"         // initialize, plan, route, execute or aggregate
	FactTrace = "trace_id"      // of the turn; nested failures have the same
	FactRoot  = "root_trace_id" // of the whole run, the same in all its turns (OC-10)
)

// WithRun returns err as the failure of a run in the given stage. Mode, message, facts and cause stay the same. If
// a run fails because of a nested run, the trace of the outer run replaces the inner one.
func WithRun(stage, traceID string, err error) *Error {
	return FromError(err).With(FactStage, stage).With(FactTrace, traceID)
}

// Recoverable reports whether the same run may succeed later. It follows from the mode.
func (e *Error) Recoverable() bool { return e.Mode.Retryable() && !e.Mode.Terminal() }

// runText returns the stage and the trace of a failed run (empty for all other errors).
func (e *Error) runText() string {
	stage, trace := e.Facts[FactStage], e.Facts[FactTrace]
	if stage == "" || trace == "" {
		return ""
	}
	return " (stage " + stage + ", trace " + trace + ")"
}
