package hook

// Escalate ends the rounds that the agent runs in, once it has ended itself: those of the
// flow made with agent.Repeat that is nearest above it (AD-28). Without one it does nothing.
func (t *Turn) Escalate() { t.escalated.Store(true) }

// Escalate is that of Turn, for a tool. It may be called beside other tools; outside of tools
// it does nothing.
func (r Running) Escalate() {
	if r.escalated != nil {
		r.escalated.Store(true)
	}
}

// Escalated reports whether a handler or a tool asked for the end of the rounds.
func (c *Control) Escalated() bool { return c.t.escalated.Load() }
