// Package interact has the commands ask, chat, approve, deny and answer, which start and continue turns.
package interact

// Commands start turns and answer their pending calls.
type Commands struct {
	Ask     ask     `cmd:"" help:"Ask the mesh something and follow the answer."`
	Chat    chat    `cmd:"" help:"Chat with the mesh, turn by turn."`
	Approve approve `cmd:"" help:"Approve tool calls that wait for an approval."`
	Deny    deny    `cmd:"" help:"Deny tool calls that wait for an approval."`
	Answer  answer  `cmd:"" help:"Give a waiting tool call its result or its credential."`
}
