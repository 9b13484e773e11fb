package remote

import (
	"net/url"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// CheckAddress returns an error for a flag value that is not an address, before the command connects. It accepts a
// gRPC target with a scheme, such as dns:///mesh:7400.
func CheckAddress(flag, addr string) error {
	if at, err := url.Parse(addr); err == nil && (at.Scheme == "http" || at.Scheme == "https") {
		return failure.Newf(failure.UserInvalidInput, "troupe", "--%s: want HOST:PORT, such as 127.0.0.1:7400, not %q; leave %s:// out", flag, addr, at.Scheme)
	}
	if rpc.CheckTarget(addr) != nil {
		return failure.Newf(failure.UserInvalidInput, "troupe", "--%s: want HOST:PORT, such as 127.0.0.1:7400, not %q", flag, addr)
	}
	return nil
}
