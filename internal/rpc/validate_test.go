package rpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// An error about credentials never contains one, even if a secret was sent as the name of a credential.
// Req: LP-18
func TestValidate_QuotesNoCredential(t *testing.T) {
	const canary = "CANARY"
	many := map[string]string{}
	for n := range 17 {
		many[fmt.Sprint(canary, n)] = canary
	}
	for name, c := range map[string]struct {
		auth *troupev1.Auth
		says string
	}{
		"name": {
			&troupev1.Auth{Credentials: map[string]string{"Bearer " + canary: "github"}},
			"auth.credentials: names must be 1 to 64 of A-Z a-z 0-9 _ . -",
		},
		"no name": {&troupev1.Auth{Credentials: map[string]string{"": canary}}, "auth.credentials: names must be"},
		"value": {
			&troupev1.Auth{Credentials: map[string]string{canary: strings.Repeat(canary, 3000)}},
			"auth.credentials: values must be at most 16384 bytes",
		},
		"too many": {&troupev1.Auth{Credentials: many}, "auth.credentials: "},
		"actor":    {&troupev1.Auth{Actor: strings.Repeat(canary, 100)}, "auth.actor: "},
	} {
		t.Run(name, func(t *testing.T) {
			req := &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: "hello"}, Auth: c.auth}
			err := Validate(req)
			require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, fmt.Sprintf("%+v %v", err, grpcfailure.ToProto(err)), canary)
		})
	}
	fits := &troupev1.Auth{Actor: strings.Repeat("a", 256), Credentials: map[string]string{"a.B_c-1": strings.Repeat("x", 16<<10), "empty": ""}}
	require.NoError(t, Validate(&troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: "hello"}, Auth: fits}))
}
