package a2a

import (
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity/bearer"
)

// forwardToken sends the token of a request with each call to the mesh. The bridge neither reads nor stores it.
func (b *Bridge) forwardToken(next http.Handler) http.Handler {
	if !b.bearer {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown := r.Header.Values("Authorization"); len(shown) == 1 {
			r = r.WithContext(metadata.AppendToOutgoingContext(r.Context(), bearer.Header, shown[0]))
		}
		next.ServeHTTP(w, r)
	})
}

// requireToken declares in a card that a token is required.
func requireToken(card *a2a.AgentCard) {
	const scheme = "bearer"
	card.SecuritySchemes = a2a.NamedSecuritySchemes{scheme: a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "A token of the mesh."}}
	card.SecurityRequirements = a2a.SecurityRequirementsOptions{{scheme: {}}}
}
