package a2a

import (
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity/bearer"
)

// forwardToken returns a handler that adds the token of a request to each call to the mesh. The bridge neither
// reads nor stores the token.
func (b *Bridge) forwardToken(next http.Handler) http.Handler {
	if !b.forwardsTokens {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown := r.Header.Values("Authorization"); len(shown) == 1 {
			r = r.WithContext(metadata.AppendToOutgoingContext(r.Context(), bearer.Header, shown[0]))
		}
		next.ServeHTTP(w, r)
	})
}

// addTokenRequirement declares in a card that requests need a token.
func addTokenRequirement(card *a2a.AgentCard) {
	const scheme = "bearer"
	card.SecuritySchemes = a2a.NamedSecuritySchemes{scheme: a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "A token of the mesh."}}
	card.SecurityRequirements = a2a.SecurityRequirementsOptions{{scheme: {}}}
}
