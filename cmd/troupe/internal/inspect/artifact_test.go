package inspect

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// artifactServer serves one artifact. It ends the stream after the number of bytes in sends.
type artifactServer struct {
	troupev1.UnimplementedSessionServiceServer
	content []byte
	sends   int
}

func (s *artifactServer) GetArtifact(_ *troupev1.GetArtifactRequest, stream troupev1.SessionService_GetArtifactServer) error {
	sum := sha256.Sum256(s.content)
	a := &troupev1.Artifact{Name: "report", Version: 1, Size: int64(len(s.content)), Sha256: hex.EncodeToString(sum[:])}
	if err := stream.Send(&troupev1.GetArtifactResponse{Item: &troupev1.GetArtifactResponse_Artifact{Artifact: a}}); err != nil {
		return err
	}
	return stream.Send(&troupev1.GetArtifactResponse{Item: &troupev1.GetArtifactResponse_Chunk{Chunk: s.content[:s.sends]}})
}

func TestGetArtifact_WritesCompleteContentOrNothing(t *testing.T) {
	l := &artifactServer{content: []byte("all of it")}
	addr := clitest.Serve(t, func(s grpc.ServiceRegistrar) { troupev1.RegisterSessionServiceServer(s, l) })
	get := func(args ...string) (code int, out, told string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"get", "artifact", "s1", "report", "--addr", addr}, args...), console.Terminal{Out: &stdout, Err: &stderr})
		return code, stdout.String(), stderr.String()
	}
	file := filepath.Join(t.TempDir(), "report")

	l.sends = 3
	code, out, told := get("-o", file)
	require.Equal(t, process.ExitError, code)
	require.Empty(t, out)
	require.Contains(t, told, "the 3 bytes of artifact report that arrived do not have its digest; try again")
	require.NoFileExists(t, file)

	l.sends = len(l.content)
	code, out, told = get()
	require.Equal(t, process.ExitOK, code, told)
	require.Equal(t, "all of it", out)
	code, _, told = get("-o", file)
	require.Equal(t, process.ExitOK, code, told)
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, l.content, written)
}
