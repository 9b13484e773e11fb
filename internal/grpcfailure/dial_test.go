package grpcfailure_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
)

// The reason is found in the error texts of grpc 1.85. A call that may have arrived is never classified as unsent.
func TestClassifyDialError_ReturnsOnlyTheReason(t *testing.T) {
	const unavailable = "rpc error: code = Unavailable desc = "
	for text, want := range map[string]struct {
		kind   grpcfailure.DialFailure
		reason string
	}{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: {
			grpcfailure.DialUnreachable,
			"connection refused",
		},
		`dns: A record lookup error: lookup nosuch.invalid on 192.0.2.1:53: no such host`: {
			grpcfailure.DialUnreachable,
			"no such host",
		},
		`no children to pick from`:                     {grpcfailure.DialUnreachable, "DNS has no address for that name"},
		`name resolver error: produced zero addresses`: {grpcfailure.DialUnreachable, "produced zero addresses"},
		`connection error: desc = "transport: authentication handshake failed: x509: certificate signed by \"x\""`:                                        {grpcfailure.DialUntrusted, `x509: certificate signed by "x"`},
		`connection error: desc = "error reading server preface: remote error: tls: certificate required"`:                                                {grpcfailure.DialRejected, "remote error: tls: certificate required"},
		`last connection error: connection error: desc = "transport: Error while dialing: dial tcp: lookup nosuch.invalid on 192.0.2.1:53: no such host"`: {grpcfailure.DialUnreachable, "no such host"},
		`connection error: desc = "error reading from server: EOF"`:                                                                                       {grpcfailure.DialOK, ""},
		`write tcp 127.0.0.1:41898->127.0.0.1:24858: write: broken pipe`:                                                                                  {grpcfailure.DialOK, ""},
	} {
		kind, reason := grpcfailure.ClassifyDialError(errors.New(unavailable + text))
		require.Equal(t, want.kind, kind, text)
		require.Equal(t, want.reason, reason, text)
	}
	kind, reason := grpcfailure.ClassifyDialError(nil)
	require.Equal(t, grpcfailure.DialOK, kind)
	require.Empty(t, reason)
}
