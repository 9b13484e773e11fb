package broker_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func createKey(t *testing.T, b *broker.Broker, session string) broker.Key {
	t.Helper()
	k, err := b.CreateKey(session, "mailbox")
	require.NoError(t, err)
	return k
}

func sealText(t *testing.T, k broker.Key, session, text string) []byte {
	t.Helper()
	sealed, err := broker.Seal(k.ID, session, k.Public, secret.New(text))
	require.NoError(t, err)
	require.False(t, bytes.Contains(sealed, []byte(text)))
	return sealed
}

func requireOpenFails(t *testing.T, b *broker.Broker, id, session string, sealed []byte, mode failure.Mode) {
	t.Helper()
	_, opened, err := b.Open(id, session, sealed)
	require.True(t, failure.Is(err, mode), "%v", err)
	require.Empty(t, opened.Reveal())
}

func TestBroker_OpensASealedSecret(t *testing.T) {
	b := broker.New("clerk-1")
	k := createKey(t, b, "s1")
	require.Equal(t, "clerk-1", broker.InstanceFromKeyID(k.ID))
	for _, text := range []string{"hunter2", strings.Repeat("é", broker.MaxSecretBytes/2)} {
		sealed := sealText(t, k, "s1", text)
		require.LessOrEqual(t, len(sealed), broker.MaxSealedBytes)
		for range 2 { // a retried attempt can open it again
			name, opened, err := b.Open(k.ID, "s1", sealed)
			require.NoError(t, err)
			require.Equal(t, "mailbox", name)
			require.Equal(t, text, opened.Reveal())
		}
	}
	require.NotEqual(t, sealText(t, k, "s1", "same"), sealText(t, k, "s1", "same"))
}

// A sealed secret can be opened only with its own key and in its own session.
// Req: LP-37
func TestBroker_OpensOnlyForItsKeyAndSession(t *testing.T) {
	b := broker.New("clerk-1")
	one, other := createKey(t, b, "s1"), createKey(t, b, "s2")
	same := createKey(t, b, "s1")
	sealed := sealText(t, one, "s1", "hunter2")
	for _, k := range []broker.Key{other, same} {
		requireOpenFails(t, b, k.ID, "s1", sealed, failure.UserInvalidInput)
		requireOpenFails(t, b, k.ID, "s2", sealed, failure.UserInvalidInput)
	}
	requireOpenFails(t, b, one.ID, "s2", sealed, failure.UserInvalidInput)
	requireOpenFails(t, b, one.ID, "s1", sealText(t, one, "s2", "hunter2"), failure.UserInvalidInput)
	to, err := broker.Seal(other.ID, "s1", one.Public, secret.New("hunter2"))
	require.NoError(t, err)
	requireOpenFails(t, b, one.ID, "s1", to, failure.UserInvalidInput)
	for _, forged := range [][]byte{nil, {1}, sealed[:len(sealed)-1], append(bytes.Clone(sealed[:40]), make([]byte, 30)...)} {
		requireOpenFails(t, b, one.ID, "s1", forged, failure.UserInvalidInput)
	}
	requireOpenFails(t, broker.New("clerk-1"), one.ID, "s1", sealed, failure.NotFound) // a restarted process has other keys
	_, opened, err := b.Open(one.ID, "s1", sealed)
	require.NoError(t, err)
	require.Equal(t, "hunter2", opened.Reveal())
	b.Forget(one.ID)
	b.Forget(one.ID)
	requireOpenFails(t, b, one.ID, "s1", sealed, failure.NotFound)
}

// Req: LP-37
func TestBroker_KeysExpireAfter15Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker.New("")
		k := createKey(t, b, "s1")
		require.Empty(t, broker.InstanceFromKeyID(k.ID))
		require.Equal(t, 15*time.Minute, time.Until(k.Expires))
		sealed := sealText(t, k, "s1", "hunter2")
		time.Sleep(15*time.Minute - time.Nanosecond)
		_, _, err := b.Open(k.ID, "s1", sealed)
		require.NoError(t, err)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireOpenFails(t, b, k.ID, "s1", sealed, failure.NotFound)
	})
}

func TestBroker_LimitsItsKeys(t *testing.T) {
	b := broker.New(strings.Repeat("x", 129))
	var last broker.Key
	for range 1 << 12 {
		last = createKey(t, b, "s1")
	}
	require.Empty(t, broker.InstanceFromKeyID(last.ID), "it would be no id of a key")
	_, err := b.CreateKey("s1", "mailbox")
	require.True(t, failure.Is(err, failure.ResourceQuota), "%v", err)
	b.Forget(last.ID)
	createKey(t, b, "s1")
}

func TestSeal_RejectsInvalidInput(t *testing.T) {
	k := createKey(t, broker.New(""), "s1")
	for _, text := range []string{"", "\xff", strings.Repeat("x", broker.MaxSecretBytes+1)} {
		_, err := broker.Seal(k.ID, "s1", k.Public, secret.New(text))
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	}
	for _, public := range [][]byte{nil, {1, 2, 3}, make([]byte, 32)} {
		_, err := broker.Seal(k.ID, "s1", public, secret.New("hunter2"))
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	}
}
