package trust_test

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

// This test fixes the exact bytes that a client in another language must sign and send.
func TestSign_IsEd25519OverTheCanonicalForm(t *testing.T) {
	at := time.UnixMilli(1767268800123)
	s := trust.Sign(alice, trust.Request{Agent: librarian, Text: "Grüße, 1:2", Time: at.Add(456 * time.Microsecond)})

	canonical := "17:troupe.request.v1,9:librarian,13:1767268800123,12:Grüße, 1:2,"
	require.Equal(t, ed25519.Sign(alice, []byte(canonical)), s.Value)
	require.Regexp(t, `^ed25519:[0-9a-f]{64}:1767268800123:[0-9a-f]{128}$`, s.String())

	parsed, err := trust.ParseSignature(s.String())
	require.NoError(t, err)
	require.Equal(t, clientName(alice), parsed.Client())
	require.NoError(t, parsed.Verify(librarian, "Grüße, 1:2", at))
}

// Req: CO-62
func TestSignature_IsValidOnlyInTheWindow(t *testing.T) {
	s := trust.Sign(alice, trust.Request{Agent: librarian, Text: question, Time: noon})
	require.Equal(t, 5*time.Minute, trust.Window)
	for offset, right := range map[time.Duration]bool{
		-trust.Window - time.Nanosecond: false,
		-trust.Window:                   true,
		0:                               true,
		trust.Window:                    true,
		trust.Window + time.Nanosecond:  false,
		1 << 62:                         false,
	} {
		err := s.Verify(librarian, question, noon.Add(offset))
		require.Equal(t, right, err == nil, "%v: %v", offset, err)
	}
}

// Req: CO-62
func TestSignature_ErrorRevealsNoDetails(t *testing.T) {
	right := trust.Sign(alice, trust.Request{Agent: librarian, Text: question, Time: noon})
	other := trust.Sign(root, trust.Request{Agent: librarian, Text: question, Time: noon})
	long := noon.Add(24 * time.Hour)
	messages := map[string]bool{}
	for name, err := range map[string]error{
		"another text":     right.Verify(librarian, question+" ", noon),
		"another agent":    right.Verify("cashier", question, noon),
		"the border moved": right.Verify(librarian+"M", question[1:], noon),
		"another time": trust.Signature{Key: right.Key, Time: noon.Add(time.Millisecond), Value: right.Value}.Verify(librarian, question,
			noon),
		"another time, and out of date": trust.Signature{Key: right.Key, Time: long, Value: right.Value}.Verify(librarian, question, noon),
		"another key":                   trust.Signature{Key: other.Key, Time: noon, Value: right.Value}.Verify(librarian, question, noon),
		"no key":                        trust.Signature{Time: noon, Value: right.Value}.Verify(librarian, question, noon),
		"no value":                      trust.Signature{Key: right.Key, Time: noon}.Verify(librarian, question, noon),
	} {
		require.Equal(t, failure.PolicySecurity, failure.ModeOf(err), name)
		messages[failure.PlainMessage(err)] = true
	}
	require.Len(t, messages, 1)
	require.NotContains(t, messages, failure.PlainMessage(right.Verify(librarian, question, long)))
}

func FuzzParseSignature(f *testing.F) {
	right := signedVisit(alice).Signature
	for _, text := range []string{"", right, right + "0", right[1:], "ed25519:::", "ED" + right[2:], "ed25519:00:-1:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := trust.ParseSignature(text)
		if err != nil {
			require.Equal(t, failure.PolicySecurity, failure.ModeOf(err))
			return
		}
		require.Equal(t, text, s.String())
		require.Equal(t, text == right, s.Verify(librarian, question, noon) == nil)
	})
}

func FuzzVerify(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("a", "1,2:b", "a,1", "2:b")
	f.Fuzz(func(t *testing.T, agent, text, otherAgent, otherText string) {
		s := trust.Sign(alice, trust.Request{Agent: agent, Text: text, Time: noon})
		require.NoError(t, s.Verify(agent, text, noon))
		same := agent == otherAgent && text == otherText
		require.Equal(t, same, s.Verify(otherAgent, otherText, noon) == nil)
	})
}
