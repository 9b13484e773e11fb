package failure_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// The texts are those of grpc 1.85. What may have arrived is never said to have missed.
func TestUnconnected_SaysWhyInNoWordsOfGRPC(t *testing.T) {
	const unavailable = "rpc error: code = Unavailable desc = "
	for text, want := range map[string]struct {
		missed failure.Missed
		why    string
	}{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: {failure.Nobody, "connection refused"},
		`dns: A record lookup error: lookup nosuch.invalid on 192.0.2.1:53: no such host`:                              {failure.Nobody, "no such host"},
		`no children to pick from`:                     {failure.Nobody, "DNS knows no address of that name"},
		`name resolver error: produced zero addresses`: {failure.Nobody, "produced zero addresses"},
		`connection error: desc = "transport: authentication handshake failed: x509: certificate signed by \"x\""`:                                        {failure.Distrust, `x509: certificate signed by "x"`},
		`connection error: desc = "error reading server preface: remote error: tls: certificate required"`:                                                {failure.Rejected, "remote error: tls: certificate required"},
		`last connection error: connection error: desc = "transport: Error while dialing: dial tcp: lookup nosuch.invalid on 192.0.2.1:53: no such host"`: {failure.Nobody, "no such host"},
		`connection error: desc = "error reading from server: EOF"`:                                                                                       {failure.Connected, ""},
		`write tcp 127.0.0.1:41898->127.0.0.1:24858: write: broken pipe`:                                                                                  {failure.Connected, ""},
	} {
		missed, why := failure.Unconnected(errors.New(unavailable + text))
		require.Equal(t, want.missed, missed, text)
		require.Equal(t, want.why, why, text)
	}
	missed, why := failure.Unconnected(nil)
	require.Equal(t, failure.Connected, missed)
	require.Empty(t, why)
}
