package eventstream_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/eventstream"
)

func readEvents(t require.TestingT, r io.Reader) string {
	text, err := io.ReadAll(eventstream.New(io.NopCloser(r)))
	require.NoError(t, err)
	return string(text)
}

func TestReader_BringsAllStreamsIntoOneForm(t *testing.T) {
	for in, want := range map[string]string{
		"data: a\n\ndata: b\n\n":                    "data: a\n\ndata: b\n\n",
		"data: a\r\n\r\ndata: b\r\n\r\n":            "data: a\n\ndata: b\n\n",
		"data: a\r\rdata: b\r\r":                    "data: a\n\ndata: b\n\n",
		"event: x\rdata: a\r\n\n":                   "event: x\ndata: a\n\n",
		": hi\n\n\n:\ndata: a\n: there\n\n: ho":     "data: a\n\n",
		"data: a: b":                                "data: a: b",
		`data: "\ud83c`:                             `data: "\ud83c`,
		`data: "\ud8`:                               `data: "\ud8`,
		`data: "\n\"\\"`:                            `data: "\n\"\\"`,
		`data: "\ud83c\udfad"`:                      `data: "\ud83c\udfad"`,
		`data: "\ud83cx"`:                           `data: "\ud83cx"`,
		`data: "\ud83c\n"`:                          `data: "\ud83c\n"`,
		`data: "\\ud83c"` + "\n" + `data: "\udfad"`: `data: "\\ud83c"` + "\n" + `data: "\udfad"`,
		`data: "a\ud83c","\uD83C"` + "\n\n" + `data: "\udfadb","\uDFAD"` + "\n\n" + `data: "\udfad"`: `data: "a",""` + "\n\n" +
			`data: "\uD83C\udfadb","\uD83C\uDFAD"` + "\n\n" + `data: "\udfad"`,
	} {
		require.Equal(t, want, readEvents(t, strings.NewReader(in)), "%q", in)
	}
}

// How a stream is split into pieces makes no difference.
func TestReader_ReadsPiecesOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			"\r", "\n", ":", "data: ", `"`, `\`, `\ud83c`, `\udfad`, "u", "d8", "ä", " ",
		})).Draw(t, "text"), "")
		require.Equal(t, readEvents(t, strings.NewReader(text)), readEvents(t, iotest.OneByteReader(strings.NewReader(text))))
	})
}

func TestReader_ReturnsTheErrorAfterTheText(t *testing.T) {
	s := eventstream.New(io.NopCloser(io.MultiReader(strings.NewReader("data: a\n"), iotest.ErrReader(io.ErrUnexpectedEOF))))
	text, err := io.ReadAll(s)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "data: a\n", string(text))
}
