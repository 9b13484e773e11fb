package token

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse checks that any file content either yields a list of valid entries or fails with an error that quotes
// no digest.
func FuzzParse(f *testing.F) {
	digest := sha256.Sum256([]byte("tr_ann"))
	sum := hex.EncodeToString(digest[:])
	for _, text := range []string{
		"", "tokens:\n", "tokens: [{name: ann, tenant: acme, role: client, sha256: " + sum + "}]\n",
		"tokens: [{name: ann, tenant: acme, role: admin, sha256: " + sum + ", expires: 2027-01-01}]\n",
		"tokens: &a [*a]\n", "tokens: [&a {name: a, tenant: b, role: client, sha256: " + sum + "}, *a]\n",
		"tokens: [{name: " + sum + ", sha256: " + sum + "}]\n", "tokens: [{name: " + sum + ", tenant: b, role: client, sha256: " + sum + "}, {name: " + sum + ", tenant: b, role: admin, sha256: " + sum + "}]\n",
		"tokens: [{<<: {name: a}, sha256: tr_not_a_digest}]\n", "tokens: {}\n", "\xff\xfe", "a: 1\n---\nb: 2\n", "tokens: [{sha256: !!binary aGk=}]\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseFile([]byte(text))
		if err != nil {
			require.NotContains(t, err.Error(), sum)
			require.Empty(t, all)
		}
		for _, l := range all {
			require.NoError(t, l.Check())
			require.Equal(t, hex.EncodeToString(l.digest[:]), string(lowerHex(l.SHA256)))
		}
		found, ok := all.findEntry("tr_ann")
		require.Equal(t, ok, found.Name != "")
		_, ok = all.findEntry(sum)
		require.False(t, ok, "a digest is no token")
	})
}

// lowerHex converts hex digits to lower case.
func lowerHex(digits string) []byte {
	raw, _ := hex.DecodeString(digits)
	return []byte(hex.EncodeToString(raw))
}
