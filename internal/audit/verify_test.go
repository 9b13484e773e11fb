package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// newChainTexts writes a log with several files and one torn line, and returns the contents of its files.
func newChainTexts(t *testing.T) [][]byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, 800, 2)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"n":`)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	writeLog(t, path, 800, 1)
	var texts [][]byte
	for _, f := range chainFiles(t, path) {
		texts = append(texts, requireBytes(t)(os.ReadFile(f)))
	}
	require.Greater(t, len(texts), 1)
	return texts
}

func requireBytes(t *testing.T) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		require.NoError(t, err)
		return b
	}
}

// verifyTexts writes texts to files in dir and verifies those files.
func verifyTexts(t *testing.T, dir, head string, texts [][]byte) (Report, error) {
	t.Helper()
	all := filePaths(dir, texts)
	for i, text := range texts {
		require.NoError(t, os.WriteFile(all[i], text, 0o600))
	}
	return Verify(all, head, nil)
}

func filePaths(dir string, texts [][]byte) (all []string) {
	for i := range texts {
		all = append(all, filepath.Join(dir, strconv.Itoa(i)))
	}
	return all
}

// replaceFile returns a copy of the chain in which file i has the given text.
func replaceFile(texts [][]byte, i int, text []byte) [][]byte {
	all := slices.Clone(texts)
	all[i] = text
	return all
}

// Every change of one byte or line of a chain is detected, except that lines at the very end may be missing.
func TestVerify_DetectsEveryChange(t *testing.T) {
	texts, dir := newChainTexts(t), t.TempDir()
	whole, err := verifyTexts(t, dir, "", texts)
	require.NoError(t, err)
	require.Equal(t, 1, whole.TornPlaces)
	require.NoError(t, verifyTextsInMemory(texts))

	for i, text := range texts {
		found := func(other []byte, what ...any) {
			_, broken := errors.AsType[*BrokenError](verifyTextsInMemory(replaceFile(texts, i, other)))
			require.True(t, broken, what...)
		}
		for at := range text {
			other := slices.Clone(text)
			other[at] ^= []byte{1, 0x20, 0x80}[at%3]
			found(other, "file %d, byte %d of %q", i, at, text)
			if at%7 == 0 {
				found(slices.Delete(slices.Clone(text), at, at+1), "file %d without byte %d", i, at)
			}
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		lines = lines[:len(lines)-1]
		for n := range lines {
			if last := i == len(texts)-1 && n == len(lines)-1; !last {
				found(bytes.Join(slices.Delete(slices.Clone(lines), n, n+1), nil), "file %d without line %d", i, n)
			}
			found(bytes.Join(slices.Insert(slices.Clone(lines), n, lines[n]), nil), "file %d with line %d twice", i, n)
			for other := range n {
				swapped := slices.Clone(lines)
				swapped[n], swapped[other] = swapped[other], swapped[n]
				found(bytes.Join(swapped, nil), "file %d with line %d in the place of %d", i, n, other)
			}
		}
	}
}

// verifyTextsInMemory verifies texts without writing them to files.
func verifyTextsInMemory(texts [][]byte) error {
	v := &verifier{foundHead: true}
	for _, text := range texts {
		if err := v.verifyContent("file", bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return v.checkEnd()
}

func TestVerify_RejectsFilesOfDifferentLogs(t *testing.T) {
	texts, dir := newChainTexts(t), t.TempDir()
	var broken *BrokenError
	_, err := verifyTexts(t, dir, "", slices.Delete(slices.Clone(texts), 1, 2))
	require.ErrorAs(t, err, &broken)
	require.Contains(t, broken.Reason, "of the chain follows line")
	other := newChainTexts(t)
	_, err = verifyTexts(t, dir, "", replaceFile(texts, 1, other[1]))
	require.ErrorAs(t, err, &broken)
	require.Contains(t, broken.Reason, "was changed after this line was written")
	another := filepath.Join(t.TempDir(), "another")
	writeLog(t, another, 0, 3)
	one := filepath.Join(t.TempDir(), "log")
	writeLog(t, one, 0, 1)
	for _, both := range [][]string{{one, another}, {another, one}, {one, one}} {
		_, err = Verify(both, "", nil)
		require.ErrorAs(t, err, &broken)
		require.Equal(t, both[1], broken.File)
		require.Contains(t, broken.Reason, "they belong to different logs, or it is given twice")
	}
	for _, text := range []string{"", "# No audit log\n", "{}\n\n"} {
		none := filepath.Join(t.TempDir(), "none")
		require.NoError(t, os.WriteFile(none, []byte(text), 0o600))
		_, err = Verify([]string{none}, "", nil)
		require.ErrorAs(t, err, &broken, "%q", text)
		require.Contains(t, broken.Reason, "check that it is one")
		_, err = Verify([]string{none, one}, "", nil)
		require.Equal(t, text != "", errors.As(err, &broken), "an empty file may be the next one, of a process that stopped between two")
	}
	_, err = Verify([]string{filepath.Join(dir, "absent")}, "", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	late, err := verifyTexts(t, dir, "", texts[1:])
	require.NoError(t, err, "the files before may be elsewhere")
	require.Greater(t, late.First, uint64(1), "and it says so")
}

func TestVerify_DetectsAMissingEndWhenTheHeadIsKnown(t *testing.T) {
	texts, dir := newChainTexts(t), t.TempDir()
	whole, err := verifyTexts(t, dir, "", texts)
	require.NoError(t, err)
	last := texts[len(texts)-1]
	cut := last[:bytes.LastIndexByte(last[:len(last)-1], '\n')+1]
	shorter, err := verifyTexts(t, dir, "", replaceFile(texts, len(texts)-1, cut))
	require.NoError(t, err, "nothing in the file shows it")
	require.Equal(t, whole.Lines-1, shorter.Lines)
	_, err = verifyTexts(t, dir, whole.Head, replaceFile(texts, len(texts)-1, cut))
	require.ErrorContains(t, err, "lines are missing at the end")
	_, err = verifyTexts(t, dir, shorter.Head, texts)
	require.NoError(t, err, "it went on behind a head that was known earlier")
}

// Verify does not read to the end of a huge file that contains no line break.
func TestVerify_StopsAtAnEndlessLine(t *testing.T) {
	endless := &endlessReader{}
	err := (&verifier{}).verifyContent("a", endless)
	broken, ok := errors.AsType[*BrokenError](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, broken.Reason, "too many bytes here form no line")
	require.Less(t, endless.bytesRead, 2*maxTornBytes)

	path := filepath.Join(t.TempDir(), "zeros")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 1<<36)) // a sparse file, which uses no space on the disk
	_, err = Verify([]string{path}, "", nil)
	_, ok = errors.AsType[*BrokenError](err)
	require.True(t, ok, "%v", err)
}

// endlessReader is a reader that never ends and consists of the letter x.
type endlessReader struct{ bytesRead int }

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.bytesRead += len(p)
	return len(p), nil
}
