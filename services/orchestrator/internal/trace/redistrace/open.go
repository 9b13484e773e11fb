package redistrace

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/heartbeat.lua
var heartbeatSource string

//go:embed scripts/stop.lua
var stopSource string

//go:embed scripts/add_followers.lua
var addFollowersSource string

var (
	heartbeatScript    = redis.NewScript(heartbeatSource)
	addFollowersScript = redis.NewScript(addFollowersSource)
	stopScript         = redis.NewScript(stopSource)
)

// maxStops is the approximate number of stop requests that are kept for owners that have not read them yet.
const maxStops = 1000

// maxBatch is how many traces one script handles. The limit keeps a script from delaying other callers of Redis.
const maxBatch = 1000

// openTraces implements trace.OpenTraces.
type openTraces struct {
	conn *conn
}

// Heartbeat implements trace.OpenTraces.
func (o *openTraces) Heartbeat(ctx context.Context, b trace.Heartbeat) (trace.HeartbeatReply, error) {
	reply := trace.HeartbeatReply{Cursor: cmp.Or(b.Cursor, "0-0")}
	for {
		part := b
		part.Owned, part.Ended, part.Cursor = b.Owned[:min(maxBatch, len(b.Owned))], b.Ended[:min(maxBatch, len(b.Ended))], reply.Cursor
		b.Owned, b.Ended = b.Owned[len(part.Owned):], b.Ended[len(part.Ended):]
		last := len(b.Owned)+len(b.Ended) == 0
		if !last {
			part.MaxTakeovers = 0 // the caller's own leases are renewed first
		}
		if err := o.sendBatch(ctx, part, &reply); err != nil || last {
			return reply, err
		}
	}
}

// heartbeatArgs returns the arguments of heartbeat.lua. If the request has no cursor, the script returns no stops.
func heartbeatArgs(b trace.Heartbeat) []any {
	args := []any{b.LeaseTime.Milliseconds(), b.MaxTakeovers, b.Cursor, len(b.Owned)}
	for _, ref := range slices.Concat(b.Owned, b.Ended) {
		args = append(args, openMember(ref))
	}
	return args
}

// sendBatch runs heartbeat.lua for one batch and merges the result into the reply of the earlier batches.
func (o *openTraces) sendBatch(ctx context.Context, b trace.Heartbeat, reply *trace.HeartbeatReply) error {
	const op = "trace.Heartbeat"
	parts, err := heartbeatScript.Run(ctx, o.conn, openKeys, heartbeatArgs(b)...).Slice()
	if err != nil {
		return o.conn.Failure(op, err)
	}
	if len(parts) != 2 {
		return fmt.Errorf("%s: reply of %d parts", op, len(parts))
	}
	taken, _ := parts[0].([]any)
	for _, t := range taken {
		reply.TakenOver = append(reply.TakenOver, parseOpenMember(fmt.Sprint(t)))
	}
	stops, _ := parts[1].([]any)
	for _, stop := range stops {
		entry, _ := stop.([]any)
		if len(entry) != 2 {
			return fmt.Errorf("%s: a stop of %d parts", op, len(entry))
		}
		fields, _ := entry[1].([]any)
		if len(fields) != 4 {
			return fmt.Errorf("%s: a stop with %d fields", op, len(fields))
		}
		reply.Cursor = fmt.Sprint(entry[0])
		reply.Stops = append(reply.Stops, trace.StopRequest{Ref: parseOpenMember(fmt.Sprint(fields[1])), Reason: fmt.Sprint(fields[3])})
	}
	return nil
}

// ReleaseLease implements trace.OpenTraces.
func (o *openTraces) ReleaseLease(ctx context.Context, ref trace.Ref) error {
	err := o.conn.ZAdd(ctx, openKey, redis.Z{Score: 0, Member: openMember(ref)}).Err()
	return o.conn.failure("trace.ReleaseLease", err)
}

// AddFollowers implements trace.OpenTraces.
func (o *openTraces) AddFollowers(ctx context.Context, ref trace.Ref, n int) (int, error) {
	sum, err := addFollowersScript.Run(ctx, o.conn, []string{followersKey(ref)}, n, trace.FollowersTime.Milliseconds()).Int()
	return sum, o.conn.failure("trace.AddFollowers", err)
}

// RequestStop implements trace.OpenTraces. The request is stored with the trace, for its next owner, and sent to
// the current owner. A trace that is no longer kept needs no stop.
func (o *openTraces) RequestStop(ctx context.Context, stop trace.StopRequest) error {
	const op = "trace.Stop"
	exists, err := stopScript.Run(ctx, o.conn, []string{recordKey(stop.Ref)}, stop.Reason).Bool()
	if err != nil || !exists {
		return o.conn.failure(op, err)
	}
	err = o.conn.XAdd(ctx, &redis.XAddArgs{
		Stream: stopsKey, MaxLen: maxStops, Approx: true, Values: []any{"trace", openMember(stop.Ref), "reason", stop.Reason},
	}).Err()
	return o.conn.failure(op, err)
}
