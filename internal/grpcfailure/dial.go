package grpcfailure

import "strings"

// DialFailure is the kind of failure for which a connection could not be made.
type DialFailure int

// The kinds of connection failure.
const (
	DialOK          DialFailure = iota // the connection was made, so the call may have arrived
	DialUnreachable                    // nothing responds at the address, or its name cannot be resolved
	DialUntrusted                      // the server did not prove its identity
	DialRejected                       // the server rejects this kind of connection, or this client
)

// ClassifyDialError returns the kind and the reason of the connection failure in a gRPC error. The reason is the
// text from TLS or from the network, without the text that gRPC adds. Unless the kind is DialOK, the call was
// never sent.
func ClassifyDialError(err error) (DialFailure, string) {
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
		case reason == "": // the balancer drops the resolver's error
			reason = "DNS has no address for that name"
		case c.kind == DialUnreachable: // the text before it repeats the address
			reason = reason[strings.LastIndex(reason, ": ")+1:]
		}
		return c.kind, strings.TrimSpace(reason)
	}
	return DialOK, ""
}
