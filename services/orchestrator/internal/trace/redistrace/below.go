package redistrace

import (
	"context"
	_ "embed"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/turnctx"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/below.lua
var belowSource string

var belowScript = redis.NewScript(belowSource)

// belowKey is the list of the sessions in which agents of a trace work.
func belowKey(ref trace.Ref) string { return "o:{" + ref.Tenant + "/" + ref.Trace + "}:below" }

// Below implements trace.Erasures. The id of a session below another one begins with a digest of
// that: what somebody entered for another reason is left alone. Agents that call as clients, without
// a credential of their turn, enter nothing: what their traces tell counts too.
func (s *Store) Below(ctx context.Context, ref session.Ref) ([]string, error) {
	const op = "trace.Below"
	list, _ := sessionKeys(of(ref.Tenant, ref.Session))
	ids, err := s.redis.ZRevRange(ctx, list, 0, -1).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	below, prefix := map[string]bool{}, turnctx.ChildSessionPrefix(ref.Session)
	for _, id := range ids {
		held, err := s.fence(ctx, op, trace.Ref{Tenant: ref.Tenant, Trace: id})
		if err != nil {
			return nil, err
		}
		entered, _ := held[4].([]any)
		for _, e := range entered {
			if id, _ := e.(string); strings.HasPrefix(id, prefix) {
				below[id] = true
			}
		}
		err = s.eachPage(ctx, trace.Ref{Tenant: ref.Tenant, Trace: id}, func(page []*troupev1.Event) {
			for _, e := range page {
				if told := e.GetSubtaskStarted().GetSessionId(); strings.HasPrefix(told, prefix) {
					below[told] = true
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(below)), nil
}
