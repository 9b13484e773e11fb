package failure

// The facts of a failed orchestration, beside those of its cause (contract OC-20).
const (
	FactStage = "stage"         // in which it failed: initialize, plan, route, execute or aggregate
	FactTrace = "trace_id"      // of the turn; the same however deep it failed
	FactRoot  = "root_trace_id" // of the run: the same in all its turns (OC-10)
)

// In is err as the failure of the run of a trace, in one of its stages. Mode, message, facts and
// cause are those of err. A run inside of another fails with the trace of the outer one once
// that fails with it.
func In(stage, traceID string, err error) *Error {
	return classify(err).With(FactStage, stage).With(FactTrace, traceID)
}

// Recoverable reports whether the same run may succeed later. It follows from the mode.
func (e *Error) Recoverable() bool { return e.Mode.Retryable() && !e.Mode.Terminal() }

// where is what the text of an error says of the run that it is of.
func (e *Error) where() string {
	stage, trace := e.Facts[FactStage], e.Facts[FactTrace]
	if stage == "" || trace == "" {
		return ""
	}
	return " (stage " + stage + ", trace " + trace + ")"
}
