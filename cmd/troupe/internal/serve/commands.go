// Package serve has the commands dev, serve and a2a, which run until they are stopped.
package serve

// Commands run programs of the mesh.
type Commands struct {
	Dev   dev       `cmd:"" help:"Run a whole mesh in this process, for development."`
	Serve services  `cmd:"" help:"Run one service of a mesh: orchestrator, memory or worker."`
	A2A   a2aBridge `cmd:"" name:"a2a" help:"Serve the mesh to clients of the A2A protocol."`
}
