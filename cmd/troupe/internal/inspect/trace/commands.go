// Package trace contains the commands watch, explain, replay and describe trace, which show what one turn did.
package trace

// Commands are the commands that show what one turn did and why.
type Commands struct {
	Watch   watchCommand   `cmd:"" help:"Show the events of a trace and follow it while it runs."`
	Explain explainCommand `cmd:"" help:"Show the decisions of a turn and the reasons for them."`
	Replay  replayCommand  `cmd:"" help:"Run the agents of a trace again over its recording and show the first difference."`
}
