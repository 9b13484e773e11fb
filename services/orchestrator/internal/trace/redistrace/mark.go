package redistrace

import (
	"context"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/begin_erasure.lua
var beginErasureSource string

//go:embed scripts/add_removed_counts.lua
var addRemovedCountsSource string

//go:embed scripts/end_erasure.lua
var endErasureSource string

//go:embed scripts/claim_erasures.lua
var claimErasuresSource string

var (
	beginErasureScript     = redis.NewScript(beginErasureSource)
	addRemovedCountsScript = redis.NewScript(addRemovedCountsSource)
	endErasureScript       = redis.NewScript(endErasureSource)
	claimErasuresScript    = redis.NewScript(claimErasuresSource)
)

const (
	markRetention = memory.Retention // as long as the memory service keeps the mark of the session
	countPrefix   = "n:"             // begins the fields of a mark that count
)

// erasureTimeout is how long other callers leave an erasure to the caller that works on it.
const erasureTimeout = 30 * time.Second

// BeginErasure implements trace.Eraser. The subject is added to the list before it is marked, so that every marked
// subject is erased eventually.
func (e *eraser) BeginErasure(ctx context.Context, subject trace.Subject, by string, anew bool) (memory.ErasureReport, error) {
	const op = "trace.BeginErasure"
	again := -time.Now().Add(erasureTimeout).UnixMilli()
	if err := e.conn.ZAdd(ctx, erasingKey, redis.Z{Score: float64(again), Member: erasingMember(subject)}).Err(); err != nil {
		return memory.ErasureReport{}, e.conn.Failure(op, err)
	}
	reply, err := beginErasureScript.Run(ctx, e.conn, []string{markKey(subject)}, by, markRetention.Milliseconds(), anew).StringSlice()
	if err != nil {
		return memory.ErasureReport{}, e.conn.Failure(op, err)
	}
	return decodeMark(subject, reply), nil
}

// decodeMark decodes the hash fields of a mark.
func decodeMark(subject trace.Subject, reply []string) memory.ErasureReport {
	e := memory.ErasureReport{Session: subject.Session, User: subject.User}
	for field := range slices.Chunk(reply, 2) {
		n, _ := strconv.ParseInt(field[1], 10, 64)
		switch name := field[0]; {
		case name == "by":
			e.RequestedBy = field[1]
		case name == "began":
			e.Began = time.UnixMilli(n).UTC()
		case name == "ended":
			e.Ended = time.UnixMilli(n).UTC()
		case strings.HasPrefix(name, countPrefix):
			e.Add(map[string]int64{strings.TrimPrefix(name, countPrefix): n})
		}
	}
	return e
}

// AddRemoved implements trace.Eraser.
func (e *eraser) AddRemoved(ctx context.Context, subject trace.Subject, from string, counts map[string]int64) error {
	args := []any{from}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		args = append(args, kind, counts[kind])
	}
	err := addRemovedCountsScript.Run(ctx, e.conn, []string{markKey(subject)}, args...).Err()
	if err == nil && subject.User != "" {
		err = e.conn.ZRem(ctx, userSessionsKey(subject.Tenant, subject.User), from).Err()
	}
	return e.conn.failure("trace.AddRemoved", err)
}

// EndErasure implements trace.Eraser.
func (e *eraser) EndErasure(ctx context.Context, subject trace.Subject) (memory.ErasureReport, error) {
	const op = "trace.EndErasure"
	reply, err := endErasureScript.Run(ctx, e.conn, []string{markKey(subject)}, markRetention.Milliseconds()).StringSlice()
	if err != nil {
		return memory.ErasureReport{}, e.conn.Failure(op, err)
	}
	err = e.conn.ZRem(ctx, erasingKey, erasingMember(subject)).Err()
	return decodeMark(subject, reply), e.conn.failure(op, err)
}

// UnfinishedErasures implements trace.Eraser.
func (e *eraser) UnfinishedErasures(ctx context.Context, limit int) (all []trace.Subject, _ error) {
	found, err := claimErasuresScript.Run(ctx, e.conn, []string{erasingKey}, limit, erasureTimeout.Milliseconds()).StringSlice()
	if err != nil {
		return nil, e.conn.Failure("trace.UnfinishedErasures", err)
	}
	for _, member := range found {
		all = append(all, parseErasingMember(member))
	}
	return all, nil
}

// SessionsOfUser implements trace.Eraser.
func (e *eraser) SessionsOfUser(ctx context.Context, tenant, user string, until time.Time, limit int) ([]string, error) {
	ids, err := e.conn.ZRevRangeByScore(ctx, userSessionsKey(tenant, user), &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(until.UnixMilli(), 10), Count: int64(limit),
	}).Result()
	return ids, e.conn.failure("trace.SessionsOfUser", err)
}
