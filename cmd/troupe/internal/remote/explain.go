package remote

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// ExplainError turns an error into advice for the user. It says what to do when the mesh cannot be reached, and
// replaces API fields with flags. It returns other errors unchanged.
func (s Server) ExplainError(err error) error {
	err = grpcfailure.FromStatus("troupe", err)
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || e.Cause == nil {
		return translateToFlags(err)
	}
	missed, why := grpcfailure.ClassifyDialError(e.Cause)
	switch {
	case missed == grpcfailure.DialUntrusted:
		return fmt.Errorf("the mesh at %s cannot be trusted by --tls-ca %s, or speaks plain text: %s", s.Addr, s.TLS.CA, why)
	case missed == grpcfailure.DialRejected && strings.Contains(why, "tls: "):
		return fmt.Errorf("the mesh at %s wants a certificate that it trusts, with --tls-cert: %s", s.Addr, why)
	case missed == grpcfailure.DialRejected:
		return fmt.Errorf("the mesh at %s ended the connection; it may want TLS, with --tls-ca, or a certificate of this side, with --tls-cert", s.Addr)
	case missed == grpcfailure.DialUnreachable && s.Addr == defaultAddr:
		return fmt.Errorf("cannot reach a mesh at %s: %s; start one with: troupe dev", s.Addr, why)
	case missed == grpcfailure.DialUnreachable:
		return fmt.Errorf("cannot reach a mesh at %s: %s", s.Addr, why)
	case e.Mode == failure.SystemNetwork:
		return fmt.Errorf("the mesh at %s went away", s.Addr)
	}
	return err
}
