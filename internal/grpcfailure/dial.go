package grpcfailure

import "strings"

// DialFailure says why a connection could not be made.
type DialFailure int

// The failures of a connection.
const (
	DialOK          DialFailure = iota // the connection was made, so the call may have arrived
	DialUnreachable                    // nothing answers at the address, or its name cannot be resolved
	DialUntrusted                      // the server did not prove its identity
	DialRejected                       // the server refuses connections of this kind, or from this client
)

// ClassifyDial returns why an error of gRPC means that no connection was made. The reason is the text of TLS or
// of the network, without the wrapping of gRPC. Unless the result is DialOK, the call was never sent.
func ClassifyDial(err error) (DialFailure, string) {
	if err == nil {
		return DialOK, ""
	}
	text := err.Error()
	for _, c := range []struct {
		marker string
		kind   DialFailure
	}{
		{"authentication handshake failed: ", DialUntrusted},
		{"error reading server preface: ", DialRejected},
		{"Error while dialing: ", DialUnreachable},
		{"lookup error: ", DialUnreachable},        // from the DNS resolver
		{"name resolver error: ", DialUnreachable}, // from the DNS resolver
		{"no children to pick from", DialUnreachable},
	} {
		_, reason, found := strings.Cut(text, c.marker)
		if !found {
			continue
		}
		reason = strings.ReplaceAll(strings.TrimSuffix(reason, `"`), `\"`, `"`)
		switch {
		case reason == "": // the balancer does not pass on what the resolver returned
			reason = "DNS knows no address of that name"
		case c.kind == DialUnreachable: // the text before it repeats the address
			reason = reason[strings.LastIndex(reason, ": ")+1:]
		}
		return c.kind, strings.TrimSpace(reason)
	}
	return DialOK, ""
}
