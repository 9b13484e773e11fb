package conversation

import "fmt"

// CheckRounds returns why messages are not a conversation that a model takes: each call of
// an assistant message is answered by one tool message, in the order of the calls, and
// nothing stands between them (CO-33).
// Calls at the very end may be without any result yet.
func CheckRounds(messages []Message) error {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == RoleTool {
			return fmt.Errorf("message %d is the result of call %q, which is not in the round before it", i+1, m.ToolCallID)
		}
		for n, call := range m.ToolCalls {
			at := i + 1 + n
			switch {
			case at >= len(messages) && n == 0:
				return nil
			case at >= len(messages) || messages[at].Role != RoleTool:
				return fmt.Errorf("message %d asks for tool %s as call %q, and message %d is not its result", i+1, call.Name, call.ID, at+1)
			case messages[at].ToolCallID != call.ID:
				return fmt.Errorf("message %d is the result of call %q, where that of %q belongs", at+1, messages[at].ToolCallID, call.ID)
			}
		}
		i += len(m.ToolCalls)
	}
	return nil
}
