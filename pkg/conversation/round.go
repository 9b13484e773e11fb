package conversation

import "fmt"

// CheckRounds returns an error if a model would reject the messages (CO-33). Each call of an assistant message
// needs exactly one tool message as its result. The results must follow the assistant message directly, in the
// order of the calls.
func CheckRounds(messages []Message) error {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == RoleTool {
			return fmt.Errorf("message %d is the result of call %q, which is not in the round before it", i+1, m.ToolCallID)
		}
		for _, call := range m.ToolCalls {
			i++
			switch {
			case i == len(messages):
				return fmt.Errorf("call %q of tool %s has no result", call.ID, call.Name)
			case messages[i].Role != RoleTool:
				return fmt.Errorf("message %d is not the result of call %q of tool %s, which belongs there", i+1, call.ID, call.Name)
			case messages[i].ToolCallID != call.ID:
				return fmt.Errorf("message %d is the result of call %q; want the result of call %q", i+1, messages[i].ToolCallID, call.ID)
			}
		}
	}
	return nil
}
