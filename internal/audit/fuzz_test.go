package audit

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Any input is either verified as a chain or rejected with the place of the error. The lines of a valid chain
// cannot be reordered undetected.
func FuzzScan(f *testing.F) {
	first, hash, err := line{N: 1, Prev: originHash, Time: time.Unix(0, 0).UTC(), Kind: Own, Action: actionBegin}.encode()
	require.NoError(f, err)
	second, _, err := line{N: 2, Prev: hash, Time: time.Unix(1, 0).UTC(), Kind: "access", Action: "get", Facts: map[string]string{"a": "b"}}.encode()
	require.NoError(f, err)
	resumed, _, err := line{N: 2, Prev: hash, Kind: Own, Action: actionResume, Facts: map[string]string{factTorn: hashOf([]byte("torn")), factTornBytes: "-1"}}.encode()
	require.NoError(f, err)
	lost, _, err := line{N: 2, Prev: hash, Kind: Own, Action: actionLost, Facts: map[string]string{factEntries: "9223372036854775808"}}.encode()
	require.NoError(f, err)
	for _, text := range [][]byte{
		nil, []byte("\n"), []byte("{}\n"), first, bytes.Join([][]byte{first, second}, nil), bytes.Join([][]byte{first, []byte("torn\n"), resumed}, nil),
		bytes.Join([][]byte{first, lost}, nil), bytes.Join([][]byte{second, first}, nil), first[:len(first)-1],
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := 0
		v := &verifier{seen: true, each: func(string, int, Recorded) { lines++ }}
		err := errors.Join(v.scan("log", bytes.NewReader(text)), v.checkEnd())
		require.Equal(t, lines, v.report.Lines)
		if err != nil {
			broken, ok := errors.AsType[*BrokenError](err)
			require.True(t, ok, "%v", err)
			require.NotEmpty(t, broken.Why)
			return
		}
		if n := bytes.IndexByte(text, '\n'); n >= 0 && n+1 < len(text) && v.report.Torn == 0 {
			require.Error(t, scanTexts([][]byte{text[n+1:], text[:n+1]}), "%q the other way round", text)
		}
	})
}
