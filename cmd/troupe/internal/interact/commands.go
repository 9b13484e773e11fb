// Package interact contains the commands ask, chat, approve, deny and answer, which start and continue turns.
package interact

// Commands are the commands that start turns and answer their pending calls.
type Commands struct {
	Ask     askCommand     `cmd:"" help:"Ask the mesh something and follow the answer."`
	Chat    chatCommand    `cmd:"" help:"Chat with the mesh, turn by turn."`
	Approve approveCommand `cmd:"" help:"Approve tool calls that wait for an approval."`
	Deny    denyCommand    `cmd:"" help:"Deny tool calls that wait for an approval."`
	Answer  answerCommand  `cmd:"" help:"Give a waiting tool call its result or its credential."`
}
