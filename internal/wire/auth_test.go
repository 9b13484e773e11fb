package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/wire/wiretest"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func TestAuth_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := execution.Auth{Actor: wiretest.Word.Draw(t, "actor")}
		for name, text := range rapid.MapOfN(wiretest.Word, wiretest.Word, 0, 4).Draw(t, "credentials") {
			if a.Credentials == nil {
				a.Credentials = map[string]secret.Value{}
			}
			a.Credentials[name] = secret.New(text)
		}
		require.Empty(t, cmp.Diff(a, AuthFromProto(AuthToProto(a))))
	})
	require.Nil(t, AuthToProto(execution.Auth{}))
	require.True(t, AuthFromProto(nil).IsZero())
	require.True(t, AuthFromProto(&troupev1.Auth{}).IsZero())
}
