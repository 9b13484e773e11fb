package conversation

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// parseConversation converts each letter of a text to a message. u is a user, a an assistant, A an assistant that
// calls tool 1, and B an assistant that calls tools 1 and 2. A digit is the result of that call.
func parseConversation(text string) []Message {
	var all []Message
	for _, c := range text {
		switch c {
		case 'u':
			all = append(all, User("hi"))
		case 'a':
			all = append(all, Assistant("agent", "hello"))
		case 'A', 'B':
			m := Assistant("agent", "")
			for id := range int(c-'A') + 1 {
				m.ToolCalls = append(m.ToolCalls, ToolCall{ID: strconv.Itoa(id + 1), Name: "echo", Arguments: "{}"})
			}
			all = append(all, m)
		default:
			all = append(all, Message{Role: RoleTool, Text: "heard", ToolCallID: string(c)})
		}
	}
	return all
}

// Req: CO-33
func TestCheckRounds_RequiresOneResultPerCallInOrder(t *testing.T) {
	for text, wrong := range map[string]string{
		"":         "",
		"ua":       "",
		"uA1a":     "",
		"uB12B12a": "",
		"B12":      "",
		"u1":       `message 2 is the result of call "1", which is not in the round before it`,
		"uB123":    `message 5 is the result of call "3", which is not in the round before it`,
		"uA11":     `message 4 is the result of call "1", which is not in the round before it`,
		"uA":       `call "1" of tool echo has no result`,
		"uB1":      `call "2" of tool echo has no result`,
		"uAu1":     `message 3 is not the result of call "1" of tool echo, which belongs there`,
		"uB1u2":    `message 4 is not the result of call "2" of tool echo, which belongs there`,
		"uAA1":     `message 3 is not the result of call "1" of tool echo, which belongs there`,
		"uB21":     `message 3 is the result of call "2"; want the result of call "1"`,
	} {
		t.Run(text, func(t *testing.T) {
			err := CheckRounds(parseConversation(text))
			if wrong == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, wrong)
		})
	}
}

// Valid conversations stay valid when they are joined. They become invalid when a message of a tool round is
// removed, moved or doubled.
func FuzzCheckRounds(f *testing.F) {
	for _, text := range []string{"", "ua", "uA1a", "uB12aB12", "uB1u2", "uA", "1", "uB21", "uBA112"} {
		f.Add([]byte(text), 1)
	}
	f.Fuzz(func(t *testing.T, letters []byte, at int) {
		text := slices.Clone(letters)
		for i, c := range text {
			text[i] = "uaAB123"[int(c)%7]
		}
		messages := parseConversation(string(text))
		if CheckRounds(messages) != nil {
			return
		}
		require.NoError(t, CheckRounds(slices.Concat(messages, messages)))
		calls, results := 0, 0
		for _, m := range messages {
			calls += len(m.ToolCalls)
			if m.Role == RoleTool {
				results++
			}
		}
		require.Equal(t, calls, results)
		if len(messages) == 0 {
			return
		}
		at = ((at % len(messages)) + len(messages)) % len(messages)
		if messages[at].Role == RoleTool {
			require.Error(t, CheckRounds(slices.Delete(slices.Clone(messages), at, at+1)))
			require.Error(t, CheckRounds(slices.Insert(slices.Clone(messages), at, messages[at])))
			require.Error(t, CheckRounds(slices.Insert(slices.Clone(messages), at, User("in between"))))
		} else {
			require.NoError(t, CheckRounds(slices.Insert(slices.Clone(messages), at, User("before"))))
		}
	})
}
