package conversation

import "strings"

// Transcript is what the user and the agents said, a line each: "User: …" and "AI: …", oldest
// first; without any, "No previous conversation." (RA-22). Line breaks within a message become
// spaces, so that nobody can put words into another's mouth. What only a model and its tools
// said to each other is left out.
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
