package failure

import "strings"

// Missed is what kept a connection from being made.
type Missed int

// What does.
const (
	Connected Missed = iota // nothing: the call may have arrived, and what it asked for have happened
	Nobody                  // nobody answers at the address, or its name has none
	Distrust                // the server did not prove who it is
	Rejected                // the server takes no connection of this kind, or not from who is here
)

// Unconnected says of an error of gRPC why no connection was made, in the words of TLS or of the
// network and without those of gRPC around them. But for Connected the call was never sent.
func Unconnected(err error) (Missed, string) {
	if err == nil {
		return Connected, ""
	}
	text := err.Error()
	for _, c := range []struct {
		words  string
		missed Missed
	}{
		{"authentication handshake failed: ", Distrust},
		{"error reading server preface: ", Rejected},
		{"Error while dialing: ", Nobody},
		{"lookup error: ", Nobody},        // of the resolver of DNS
		{"name resolver error: ", Nobody}, // so too
		{"no children to pick from", Nobody},
	} {
		_, why, found := strings.Cut(text, c.words)
		if !found {
			continue
		}
		why = strings.ReplaceAll(strings.TrimSuffix(why, `"`), `\"`, `"`)
		switch {
		case why == "": // a balancer keeps what its resolver said to itself
			why = "DNS knows no address of that name"
		case c.missed == Nobody: // the rest of it names the address once more
			why = why[strings.LastIndex(why, ": ")+1:]
		}
		return c.missed, strings.TrimSpace(why)
	}
	return Connected, ""
}
