package redistrace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/tracelog"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// maxDecisions is how many decisions of a type a tenant's audit points to.
const maxDecisions = 10_000

// decisionsPage is how many pointers of a type are followed at once.
const decisionsPage = 200

// auditKey holds pointers to the events that tell of decisions of a type, by time.
func auditKey(tenant string, kind troupev1.DecisionType) string {
	return "o:audit:{" + tenant + "}:" + strings.ToLower(strings.TrimPrefix(kind.String(), "DECISION_TYPE_"))
}

// notes are the pointers to the decisions among events, by key. To write one twice changes
// nothing.
func notes(ref trace.Ref, events []*troupev1.Event) map[string][]redis.Z {
	var all map[string][]redis.Z
	for _, e := range events {
		d := tracelog.DecisionOf(e)
		if d == nil {
			continue
		}
		if all == nil {
			all = map[string][]redis.Z{}
		}
		key := auditKey(ref.Tenant, d.GetType())
		all[key] = append(all[key], redis.Z{Score: float64(d.GetTime().AsTime().UnixMilli()), Member: fmt.Sprintf("%s/%d", ref.Trace, e.GetSequence())})
	}
	return all
}

// note adds the pointers to what is sent with the events. Sets that nobody writes to any more
// go with the last trace that may be in them.
func (s *Store) note(ctx context.Context, p redis.Pipeliner, pointers map[string][]redis.Z) {
	for _, key := range slices.Sorted(maps.Keys(pointers)) {
		p.ZAdd(ctx, key, pointers[key]...)
		p.ZRemRangeByRank(ctx, key, 0, -maxDecisions-1)
		p.PExpire(ctx, key, s.kept())
	}
}

// appendNoted runs the script that appends, and writes the pointers in the same round trip.
// It fails when either does: whoever repeats it writes what is missing.
func (s *Store) appendNoted(ctx context.Context, ref trace.Ref, events []*troupev1.Event, result *troupev1.TurnResult, args []any) ([]string, error) {
	pointers, poison := notes(ref, events), trace.Quarantined(result)
	if len(pointers) == 0 && !poison {
		return s.append.Run(ctx, s.redis, keys(ref), args...).StringSlice()
	}
	send := func(run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) ([]string, error) {
		var reply *redis.Cmd
		_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			reply = run(ctx, p, keys(ref), args...)
			s.note(ctx, p, pointers)
			if poison {
				s.enlist(ctx, p, quarantineKey(ref.Tenant), ref.Trace, events[len(events)-1].GetTime().AsTime())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return reply.StringSlice()
	}
	reply, err := send(s.append.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(s.append.Eval)
	}
	return reply, err
}

// Decisions implements trace.Audit.
func (s *Store) Decisions(ctx context.Context, tenant string, q trace.DecisionQuery) ([]*troupev1.Decision, error) {
	if q.Trace != "" {
		all, err := s.ofTrace(ctx, trace.Ref{Tenant: tenant, Trace: q.Trace}, q)
		return all[:min(q.Limit, len(all))], err
	}
	var all []*troupev1.Decision
	for number := range troupev1.DecisionType_name {
		kind := troupev1.DecisionType(number)
		if kind == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED || !q.Wants(&troupev1.Decision{Type: kind}) {
			continue
		}
		found, err := s.ofType(ctx, tenant, trace.DecisionQuery{Type: kind, Limit: q.Limit})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b *troupev1.Decision) int {
		return cmp.Or(b.GetTime().AsTime().Compare(a.GetTime().AsTime()), cmp.Compare(a.GetTraceId(), b.GetTraceId()), cmp.Compare(sequence(b), sequence(a)))
	})
	return all[:min(q.Limit, len(all))], nil
}

// sequence is that of the event that told of a decision.
func sequence(d *troupev1.Decision) int {
	_, text, _ := strings.Cut(d.GetRecordId(), "-")
	n, _ := strconv.Atoi(text) // of a record that is made here
	return n
}

func (s *Store) ofTrace(ctx context.Context, ref trace.Ref, q trace.DecisionQuery) (all []*troupev1.Decision, _ error) {
	for after := uint64(0); ; {
		page, err := s.Events(ctx, ref, after, decisionsPage)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if d := tracelog.DecisionOf(e); q.Wants(d) {
				all = append(all, d)
			}
		}
		if len(page) < decisionsPage {
			break
		}
		after = page[len(page)-1].GetSequence()
	}
	slices.Reverse(all)
	return all, nil
}

// ofType follows the pointers, newest first. One that leads nowhere is passed over: its trace
// is no longer kept, or another owner's event took its place.
func (s *Store) ofType(ctx context.Context, tenant string, q trace.DecisionQuery) (all []*troupev1.Decision, _ error) {
	const op = "trace.Decisions"
	for from := int64(0); ; from += decisionsPage {
		pointers, err := s.redis.ZRevRange(ctx, auditKey(tenant, q.Type), from, from+decisionsPage-1).Result()
		if err != nil {
			return nil, s.redis.Fault(op, err)
		}
		replies := make([]*redis.XMessageSliceCmd, len(pointers))
		if _, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, pointer := range pointers {
				id, sequence, _ := strings.Cut(pointer, "/")
				replies[i] = p.XRangeN(ctx, keys(trace.Ref{Tenant: tenant, Trace: id})[1], sequence+"-0", sequence+"-0", 1)
			}
			return nil
		}); err != nil {
			return nil, s.redis.Fault(op, err)
		}
		for _, reply := range replies {
			for _, entry := range reply.Val() {
				body, _ := entry.Values["e"].(string)
				e := &troupev1.Event{}
				if err := proto.Unmarshal([]byte(body), e); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", op, entry.ID, err)
				}
				if d := tracelog.DecisionOf(e); q.Wants(d) {
					all = append(all, d)
				}
			}
		}
		if len(all) >= q.Limit || len(pointers) < decisionsPage {
			return all, nil
		}
	}
}
