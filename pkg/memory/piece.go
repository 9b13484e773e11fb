package memory

import (
	"strconv"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// CheckPiece checks a piece by the rules of AppendArtifact. stored is the number of bytes of the content that are
// already stored. It returns true if the piece is the next one to store, and false without an error if the piece
// is already stored. Modes: user_invalid_input, base_mismatch.
func (c Content) CheckPiece(op string, stored, offset int64, piece []byte) (bool, error) {
	switch {
	case len(piece) == 0 || int64(len(piece)) != min(ArtifactChunk, c.Size-offset):
		return false, failure.Newf(failure.UserInvalidInput, op, "a piece of %d bytes at %d has the wrong length; send %d bytes, and less only at the end",
			len(piece), offset, ArtifactChunk).With("offset", strconv.FormatInt(offset, 10))
	case offset+int64(len(piece)) <= stored:
		return false, nil
	case offset != stored:
		return false, storeerror.WrongOffset(op, stored)
	default:
		return true, nil
	}
}
