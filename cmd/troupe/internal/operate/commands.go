// Package operate contains the commands for operators: pause, resume, start, drain, quarantine, release, cancel, session,
// delete, erase, audit and provision.
package operate

// Commands are the commands that control agents, turns and sessions, and delete stored data.
type Commands struct {
	Pause      pauseCommand      `cmd:"" help:"Stop giving steps to an agent without stopping its instances."`
	Resume     resumeCommand     `cmd:"" help:"Give steps to a paused agent again."`
	Start      startCommand      `cmd:"" help:"Start an instance that registered before it was started."`
	Drain      drainCommand      `cmd:"" help:"Let an instance finish its steps, then stop it."`
	Quarantine quarantineCommand `cmd:"" help:"Block an agent at once: the kill switch."`
	Release    releaseCommand    `cmd:"" help:"End the quarantine of an agent."`
	Cancel     cancelCommand     `cmd:"" help:"Cancel a running turn."`
	Session    sessionCommands   `cmd:"" help:"Pause, resume, compact or clear a session."`
	Delete     deleteCommands    `cmd:"" help:"Delete sessions for good."`
	Erase      eraseCommands     `cmd:"" help:"Erase a user with all sessions and print a receipt."`
	Audit      auditCommands     `cmd:"" help:"Verify and read audit logs."`
	Provision  provisionCommands `cmd:"" help:"Set up the users and rights of a store."`
}
