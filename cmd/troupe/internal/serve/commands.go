// Package serve contains the commands dev, serve and a2a, which run until they are stopped.
package serve

// Commands are the commands that run the programs of a mesh.
type Commands struct {
	Dev   devCommand      `cmd:"" help:"Run a whole mesh in this process, for development."`
	Serve serviceCommands `cmd:"" help:"Run one service of a mesh: orchestrator, memory or worker."`
	A2A   a2aCommand      `cmd:"" name:"a2a" help:"Serve the mesh to clients of the A2A protocol."`
}
