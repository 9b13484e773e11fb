package egress

import (
	"io"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// limitedBody is a response body with a size limit. Reading beyond the limit is an error, so that a truncated body
// is never mistaken for the whole one.
type limitedBody struct {
	io.ReadCloser

	remaining, limit int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.remaining < 0 {
		return 0, b.newTooLongError()
	}
	p = p[:min(int64(len(p)), b.remaining+1)]
	n, err := b.ReadCloser.Read(p)
	b.remaining -= int64(n)
	if b.remaining < 0 {
		return n - 1, b.newTooLongError()
	}
	return n, err
}

func (b *limitedBody) newTooLongError() error {
	return failure.Newf(failure.ResourceQuota, "egress.Read",
		"the answer has more than %d bytes; ask for a part of it, or for something shorter", b.limit)
}
