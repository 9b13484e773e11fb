package verify

import (
	"strings"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// The names of the checks of stored sessions.
const (
	HistoryComplete = "history whole"
	KeyOwnership    = "ownership of keys"
)

// AcknowledgedTurn is a turn whose result a client has received.
type AcknowledgedTurn struct {
	Mark    string
	Answers []string // of its steps, in order
}

// CheckHistory checks the final messages of a session. Sequences have no gap. Each acknowledged turn is there
// once, and its answers directly follow its message.
func CheckHistory(session string, messages []*troupev1.Message, acknowledged []AcknowledgedTurn) (found []violation.Violation) {
	at := map[string][]int{}
	for i, m := range messages {
		if m.GetSequence() != int64(i+1) {
			found = append(found, violation.Newf(HistoryComplete, "%s: message %d has sequence %d", session, i+1, m.GetSequence()))
		}
		if m.GetRole() == troupev1.Role_ROLE_USER {
			at[checkText(m)] = append(at[checkText(m)], i)
		}
	}
	for _, turn := range acknowledged {
		places := at[turn.Mark]
		if len(places) != 1 {
			found = append(found, violation.Newf(HistoryComplete, "%s: the message of %s is there %d times", session, turn.Mark, len(places)))
			continue
		}
		for n, answer := range turn.Answers {
			i := places[0] + 1 + n
			if i >= len(messages) || messages[i].GetRole() != troupev1.Role_ROLE_ASSISTANT || checkText(messages[i]) != answer {
				found = append(found, violation.Newf(HistoryComplete, "%s: answer %d of %s is not behind its message", session, n+1, turn.Mark))
				break
			}
		}
	}
	return found
}

func checkText(m *troupev1.Message) string {
	var all strings.Builder
	for _, p := range m.GetParts() {
		all.WriteString(p.GetText())
	}
	return all.String()
}

// CheckKeys checks that every key in Redis belongs to one of the two tiers that Redis stores.
func CheckKeys(keys []string) (found []violation.Violation) {
	for _, key := range keys {
		if !strings.HasPrefix(key, "m:") && !strings.HasPrefix(key, "o:") {
			found = append(found, violation.Newf(KeyOwnership, "Redis holds %q, which is neither m: nor o:", key))
		}
	}
	return found
}
