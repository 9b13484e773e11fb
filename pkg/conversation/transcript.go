package conversation

import "strings"

// Transcript formats the messages of the user and the agents as lines "User: …" and "AI: …", oldest first. It
// returns "No previous conversation." if there are none (RA-22). Tool calls and their results are left out. Line
// breaks within a message become spaces, so that a message cannot forge a line of another author.
func Transcript(messages []Message) string {
	var lines []string
	for _, m := range messages {
		text := strings.Join(strings.Fields(m.Text), " ")
		switch {
		case text == "":
		case m.Role == RoleUser:
			lines = append(lines, "User: "+text)
		case m.Role == RoleAssistant && len(m.ToolCalls) == 0:
			lines = append(lines, "AI: "+text)
		case m.Role == RoleSummary:
			lines = append(lines, "Before: "+text)
		}
	}
	if len(lines) == 0 {
		return "No previous conversation."
	}
	return strings.Join(lines, "\n")
}
