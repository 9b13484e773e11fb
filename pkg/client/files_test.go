package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestFiles_SetsNameAndMediaType(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int, head string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, append([]byte(head), make([]byte, size)...), 0o600))
		return path
	}
	parts, err := client.Files(write("chart.png", 1, "x"), write("unnamed", 1, "%PDF-1.7"))
	require.NoError(t, err)
	require.Equal(t, "chart.png", parts[0].GetBlob().GetName())
	require.Equal(t, "image/png", parts[0].GetBlob().GetMediaType())
	require.Equal(t, "application/pdf", parts[1].GetBlob().GetMediaType())
	require.EqualValues(t, 9, parts[1].GetBlob().GetSize())

	var many, large []string
	for i := range conversation.MaxAttachments + 1 {
		many = append(many, write(fmt.Sprint(i), 1, "x"))
	}
	for i := range 4 {
		large = append(large, write(fmt.Sprint("large", i), conversation.MaxAttachmentBytes, ""))
	}
	for _, paths := range [][]string{many, large, {write("larger", conversation.MaxAttachmentBytes, "x")}, {filepath.Join(dir, "nothing")}, {dir}} {
		_, err := client.Files(paths...)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	}
	_, err = client.Files(filepath.Join(dir, "nothing"))
	require.ErrorContains(t, err, "no such file")
}
