package redistrace

import (
	"context"

	"github.com/redis/go-redis/v9"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// List implements trace.Store. It omits traces whose retention has passed. It takes 2 round trips for a page. It
// reads another page when some traces of a page are unwanted or no longer kept.
func (r *reader) List(ctx context.Context, tenant string, q trace.Query) ([]*troupev1.Trace, error) {
	const op = "trace.List"
	key := listKey(tenant, q)
	var all []*troupev1.Trace
	for from, last := int64(0), false; !last && len(all) < q.Limit; from += int64(q.Limit) {
		ids, err := r.conn.ZRevRange(ctx, key, from, from+int64(q.Limit)-1).Result()
		if err != nil {
			return nil, r.conn.Failure(op, err)
		}
		last = len(ids) < q.Limit || key == indexKey(tenant)
		if last && q.Root != "" {
			ids = append(ids, q.Root) // the root trace is the oldest, and the list of the run does not contain it
		}
		page, err := r.loadRecords(ctx, tenant, ids)
		if err != nil {
			return nil, err
		}
		for _, record := range page {
			if q.OnlyQuarantined && !record.GetQuarantined() || q.Root != "" && record.GetRootTraceId() != q.Root {
				continue
			}
			all = append(all, record)
		}
	}
	return all[:min(q.Limit, len(all))], nil
}

// listKey returns the key of the list that contains the traces of a query.
func listKey(tenant string, q trace.Query) string {
	switch {
	case q.Root != "":
		return runKey(tenant, q.Root)
	case q.Session != "":
		traces, _ := sessionKeys(sessionSubject(tenant, q.Session))
		return traces
	case q.OnlyQuarantined:
		return quarantineKey(tenant)
	default:
		return indexKey(tenant)
	}
}

// loadRecords returns the records of the traces that are still kept, without the texts of their results.
func (r *reader) loadRecords(ctx context.Context, tenant string, ids []string) ([]*troupev1.Trace, error) {
	replies := make([]*redis.MapStringStringCmd, len(ids))
	if _, err := r.conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			replies[i] = p.HGetAll(ctx, recordKey(trace.Ref{Tenant: tenant, Trace: id}))
		}
		return nil
	}); err != nil {
		return nil, r.conn.Failure("trace.List", err)
	}
	var all []*troupev1.Trace
	for _, reply := range replies {
		if len(reply.Val()) == 0 || reply.Val()["erased"] != "" {
			continue
		}
		record, err := decodeRecord(reply.Val())
		if err != nil {
			return nil, err
		}
		trimResult(record.GetResult())
		all = append(all, record)
	}
	return all, nil
}

// trimResult removes the long texts from a result. GetTrace still returns them. Even a list of the longest results
// then fits into a gRPC message that every client accepts.
func trimResult(r *troupev1.TurnResult) {
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
