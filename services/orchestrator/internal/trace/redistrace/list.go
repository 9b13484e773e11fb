package redistrace

import (
	"context"

	"github.com/redis/go-redis/v9"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// List implements trace.Store. Traces whose retention has passed are left out. It takes 2 round trips, and
// 2 more for each page of a list of which not all traces are wanted or kept any more.
func (r *reader) List(ctx context.Context, tenant string, q trace.Query) ([]*troupev1.Trace, error) {
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
		ids, err := r.conn.ZRevRange(ctx, key, from, from+int64(q.Limit)-1).Result()
		if err != nil {
			return nil, r.conn.Failure(op, err)
		}
		last = len(ids) < q.Limit || key == indexKey(tenant)
		if last && q.Root != "" {
			ids = append(ids, q.Root) // the root began before all others, and no list of the run has it
		}
		page, err := r.records(ctx, tenant, ids)
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

// records returns the records of traces that are kept, without the texts of their results.
func (r *reader) records(ctx context.Context, tenant string, ids []string) ([]*troupev1.Trace, error) {
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

// trimResult removes the long texts from a result, which GetTrace returns. So even a list of the longest
// results fits into a gRPC message that every client accepts.
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
