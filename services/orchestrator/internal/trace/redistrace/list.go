package redistrace

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// maxIndex is how many traces a list holds.
const maxIndex = 10_000

func indexKey(tenant string) string { return "o:idx:{" + tenant + "}" }

func runKey(tenant, root string) string { return "o:run:{" + tenant + "/" + root + "}" }

func quarantineKey(tenant string) string { return "o:quarantine:{" + tenant + "}" }

func visitsKey(tenant, user string) string { return "o:{" + tenant + "/u/" + user + "}:sessions" }

// enlist puts a trace on a list that has an end, unless it is on it.
func (s *Store) enlist(ctx context.Context, p redis.Pipeliner, key, id string, at time.Time) {
	p.ZAddNX(ctx, key, redis.Z{Score: float64(at.UnixMilli()), Member: id})
	p.ZRemRangeByRank(ctx, key, 0, -maxIndex-1)
	p.PExpire(ctx, key, s.kept())
}

// visit puts the session of a trace on the list of its user, which leads to traces of sessions that
// the memory service has forgotten.
func (s *Store) visit(ctx context.Context, p redis.Pipeliner, c trace.Claim) {
	if c.Terms.User == "" {
		return
	}
	now, key := time.Now(), visitsKey(c.Tenant, c.Terms.User)
	p.ZAdd(ctx, key, redis.Z{Score: float64(now.UnixMilli()), Member: c.Record.GetSessionId()})
	p.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.Add(-s.kept()).UnixMilli(), 10))
	p.PExpire(ctx, key, s.kept())
}

// List implements trace.Store. Traces whose retention is over are left out. It takes 2 round
// trips, and 2 more for each page of a list whose traces are not all wanted or kept any more.
func (s *Store) List(ctx context.Context, tenant string, q trace.Query) ([]*troupev1.Trace, error) {
	const op = "trace.List"
	key := indexKey(tenant)
	switch {
	case q.Root != "":
		key = runKey(tenant, q.Root)
	case q.Quarantined:
		key = quarantineKey(tenant)
	}
	var all []*troupev1.Trace
	for from, last := int64(0), false; !last && len(all) < q.Limit; from += int64(q.Limit) {
		ids, err := s.redis.ZRevRange(ctx, key, from, from+int64(q.Limit)-1).Result()
		if err != nil {
			return nil, s.redis.Fault(op, err)
		}
		last = len(ids) < q.Limit || key == indexKey(tenant)
		if last && q.Root != "" {
			ids = append(ids, q.Root) // which began before all others, and is on no list of its own
		}
		page, err := s.records(ctx, tenant, ids)
		if err != nil {
			return nil, err
		}
		for _, record := range page {
			if q.Quarantined && !record.GetQuarantined() || q.Root != "" && record.GetRootTraceId() != q.Root {
				continue
			}
			all = append(all, record)
		}
	}
	return all[:min(q.Limit, len(all))], nil
}

// records are those of traces that are kept, without the texts of their results.
func (s *Store) records(ctx context.Context, tenant string, ids []string) ([]*troupev1.Trace, error) {
	replies := make([]*redis.MapStringStringCmd, len(ids))
	if _, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			replies[i] = p.HGetAll(ctx, keys(trace.Ref{Tenant: tenant, Trace: id})[0])
		}
		return nil
	}); err != nil {
		return nil, s.redis.Fault("trace.List", err)
	}
	var all []*troupev1.Trace
	for _, reply := range replies {
		if len(reply.Val()) == 0 || reply.Val()["erased"] != "" {
			continue
		}
		record, err := decode(reply.Val())
		if err != nil {
			return nil, err
		}
		brief(record.GetResult())
		all = append(all, record)
	}
	return all, nil
}

// brief leaves out of a result what may be long, and GetTrace has: a list of the longest results that
// there may be is still a message that every client takes.
func brief(r *troupev1.TurnResult) {
	if r == nil {
		return
	}
	r.Text, r.Pending = "", nil
	if p := r.GetPartial(); p != nil {
		p.PartialData, p.StepResults = nil, nil
	}
	if c := r.GetCoordination(); c != nil {
		c.ToolHistory = nil
	}
}
