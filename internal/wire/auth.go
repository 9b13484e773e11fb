package wire

import (
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// AuthToProto converts credentials (nil if they are zero). The message holds them in plain text, so it must be
// neither stored nor printed.
func AuthToProto(a execution.Auth) *troupev1.Auth {
	if a.IsZero() {
		return nil
	}
	p := &troupev1.Auth{Actor: a.Actor}
	for name, v := range a.Credentials {
		if p.Credentials == nil {
			p.Credentials = map[string]string{}
		}
		p.Credentials[name] = v.Reveal()
	}
	return p
}

// AuthFromProto is the inverse of AuthToProto.
func AuthFromProto(p *troupev1.Auth) execution.Auth {
	a := execution.Auth{Actor: p.GetActor()}
	for name, text := range p.GetCredentials() {
		if a.Credentials == nil {
			a.Credentials = map[string]secret.Value{}
		}
		a.Credentials[name] = secret.New(text)
	}
	return a
}
