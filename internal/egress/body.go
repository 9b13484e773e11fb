package egress

import (
	"io"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// limitedBody is a response body with a size limit. Reading beyond the limit is an error, so that a truncated body
// is never mistaken for the whole one.
type body struct {
	io.ReadCloser

	left, most int64
}

func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.left < 0 {
		return 0, b.tooLong()
	}
	p = p[:min(int64(len(p)), b.left+1)]
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, b.tooLong()
	}
	return n, err
}

func (b *body) tooLong() error {
	return failure.Newf(failure.ResourceQuota, "egress.Read",
		"the answer has more than %d bytes; ask for a part of it, or for something shorter", b.most)
}
