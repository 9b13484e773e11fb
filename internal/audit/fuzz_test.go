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
	first, hash, err := line{Number: 1, PrevHash: originHash, Time: time.Unix(0, 0).UTC(), Kind: LogItself, Action: actionBegin}.encode()
	require.NoError(f, err)
	second, _, err := line{Number: 2, PrevHash: hash, Time: time.Unix(1, 0).UTC(), Kind: "access", Action: "get", Facts: map[string]string{"a": "b"}}.encode()
	require.NoError(f, err)
	resumed, _, err := line{Number: 2, PrevHash: hash, Kind: LogItself, Action: actionResume, Facts: map[string]string{
		factTorn:      hashText([]byte("torn")),
		factTornBytes: "-1",
	}}.encode()
	require.NoError(f, err)
	lost, _, err := line{Number: 2, PrevHash: hash, Kind: LogItself, Action: actionLost, Facts: map[string]string{factEntries: "9223372036854775808"}}.encode()
	require.NoError(f, err)
	for _, text := range [][]byte{
		nil, []byte("\n"), []byte("{}\n"), first, bytes.Join([][]byte{first, second}, nil), bytes.Join([][]byte{first, []byte("torn\n"), resumed}, nil),
		bytes.Join([][]byte{first, lost}, nil), bytes.Join([][]byte{second, first}, nil), first[:len(first)-1],
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := 0
		v := &verifier{foundHead: true, onEntry: func(string, int, RecordedEntry) { lines++ }}
		err := errors.Join(v.verifyContent("log", bytes.NewReader(text)), v.checkEnd())
		require.Equal(t, lines, v.report.Lines)
		if err != nil {
			broken, ok := errors.AsType[*BrokenError](err)
			require.True(t, ok, "%v", err)
			require.NotEmpty(t, broken.Reason)
			return
		}
		if n := bytes.IndexByte(text, '\n'); n >= 0 && n+1 < len(text) && v.report.TornPlaces == 0 {
			require.Error(t, verifyTextsInMemory([][]byte{text[n+1:], text[:n+1]}), "%q the other way round", text)
		}
	})
}
