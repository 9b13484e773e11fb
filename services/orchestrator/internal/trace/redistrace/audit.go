package redistrace

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/tracelog"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Decisions implements trace.DecisionIndex.
func (r *reader) Decisions(ctx context.Context, tenant string, q trace.DecisionQuery) ([]*troupev1.Decision, error) {
	if q.Trace != "" {
		all, err := r.decisionsOfTrace(ctx, trace.Ref{Tenant: tenant, Trace: q.Trace}, q)
		return all[:min(q.Limit, len(all))], err
	}
	var all []*troupev1.Decision
	for number := range troupev1.DecisionType_name {
		kind := troupev1.DecisionType(number)
		if kind == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED || !q.Matches(&troupev1.Decision{Type: kind}) {
			continue
		}
		found, err := r.decisionsOfType(ctx, tenant, trace.DecisionQuery{Type: kind, Limit: q.Limit})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b *troupev1.Decision) int {
		return cmp.Or(b.GetTime().AsTime().Compare(a.GetTime().AsTime()), cmp.Compare(a.GetTraceId(), b.GetTraceId()), cmp.Compare(sequenceOfDecision(b),
			sequenceOfDecision(a)))
	})
	return all[:min(q.Limit, len(all))], nil
}

// sequenceOfDecision returns the sequence of the event that contains a decision.
func sequenceOfDecision(d *troupev1.Decision) int {
	_, text, _ := strings.Cut(d.GetRecordId(), "-")
	n, _ := strconv.Atoi(text) // the record id is made here
	return n
}

// decisionsOfTrace reads the events of a trace and returns their decisions, newest first.
func (r *reader) decisionsOfTrace(ctx context.Context, ref trace.Ref, q trace.DecisionQuery) (all []*troupev1.Decision, _ error) {
	err := r.eachPage(ctx, ref, func(page []*troupev1.Event) {
		for _, e := range page {
			if d := tracelog.DecisionFromEvent(e); q.Matches(d) {
				all = append(all, d)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	return all, nil
}

// decisionsOfType follows the pointers, newest first. It ignores a pointer without a matching event: the trace is
// no longer kept, or the event of another owner has the sequence.
func (r *reader) decisionsOfType(ctx context.Context, tenant string, q trace.DecisionQuery) (all []*troupev1.Decision, _ error) {
	const op = "trace.Decisions"
	for from := int64(0); ; from += pageSize {
		pointers, err := r.conn.ZRevRange(ctx, auditKey(tenant, q.Type), from, from+pageSize-1).Result()
		if err != nil {
			return nil, r.conn.Failure(op, err)
		}
		replies := make([]*redis.XMessageSliceCmd, len(pointers))
		if _, err := r.conn.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, pointer := range pointers {
				id, sequence, _ := strings.Cut(pointer, "/")
				replies[i] = p.XRangeN(ctx, eventsKey(trace.Ref{Tenant: tenant, Trace: id}), sequence+"-0", sequence+"-0", 1)
			}
			return nil
		}); err != nil {
			return nil, r.conn.Failure(op, err)
		}
		for _, reply := range replies {
			for _, entry := range reply.Val() {
				e, err := decodeEvent(op, entry)
				if err != nil {
					return nil, err
				}
				if d := tracelog.DecisionFromEvent(e); q.Matches(d) {
					all = append(all, d)
				}
			}
		}
		if len(all) >= q.Limit || len(pointers) < pageSize {
			return all, nil
		}
	}
}
