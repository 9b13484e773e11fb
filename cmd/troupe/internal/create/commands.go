// Package create contains the commands new, test and conformance. They create agents and credentials, and test
// agents and workers.
package create

// Commands are the commands that create agents and credentials, and test agents and workers.
type Commands struct {
	New         newCommands        `cmd:"" help:"Create an agent, a certificate or a token."`
	Test        testCommand        `cmd:"" help:"Run the tests that a folder declares beside its agents."`
	Conformance conformanceCommand `cmd:"" help:"Check that a worker, in any language, follows the rules of the mesh."`
}

type newCommands struct {
	Agent       newAgentCommand       `cmd:"" help:"Create a folder with a working agent and its tests."`
	Certificate newCertificateCommand `cmd:"" help:"Create the certificate with which a worker that is not in Go joins troupe dev."`
	Token       newTokenCommand       `cmd:"" help:"Create a token with which a client proves who it is."`
}
