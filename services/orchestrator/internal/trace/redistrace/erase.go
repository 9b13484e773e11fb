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
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/enter.lua
var enterSource string

//go:embed scripts/condemn.lua
var condemnSource string

//go:embed scripts/fence.lua
var fenceSource string

//go:embed scripts/strip.lua
var stripSource string

//go:embed scripts/strike.lua
var strikeSource string

//go:embed scripts/erased.lua
var erasedSource string

//go:embed scripts/unfinished.lua
var unfinishedSource string

var (
	enterScript      = redis.NewScript(enterSource)
	condemnScript    = redis.NewScript(condemnSource)
	fenceScript      = redis.NewScript(fenceSource)
	stripScript      = redis.NewScript(stripSource)
	strikeScript     = redis.NewScript(strikeSource)
	erasedScript     = redis.NewScript(erasedSource)
	unfinishedScript = redis.NewScript(unfinishedSource)
)

const (
	erasingKey = "o:{erasing}:list"
	markKept   = memory.Retention // as long as the mark of the session itself
	atOnce     = 16               // traces that are erased beside each other
	tally      = "n:"             // begins the fields of a mark that count
)

// stale is for how long nobody else goes on with an erasure that somebody is at.
const stale = 30 * time.Second

func of(tenant, id string) trace.Subject { return trace.Subject{Tenant: tenant, Session: id} }

// sessionKeys are the list of a session's traces, and its mark.
func sessionKeys(s trace.Subject) (traces, mark string) {
	tag := "o:{" + s.Tenant + "/" + s.Session + "}:"
	return tag + "traces", tag + "erased"
}

func markOf(s trace.Subject) string {
	if s.User != "" {
		return "o:{" + s.Tenant + "/u/" + s.User + "}:erased"
	}
	_, mark := sessionKeys(s)
	return mark
}

// entry is a subject in the list of erasures; no id has a slash.
func entry(s trace.Subject) string {
	if s.User != "" {
		return s.Tenant + "/u/" + s.User
	}
	return s.Tenant + "/s/" + s.Session
}

func subjectOf(entry string) trace.Subject {
	tenant, rest, _ := strings.Cut(entry, "/")
	kind, id, _ := strings.Cut(rest, "/")
	if kind == "u" {
		return trace.Subject{Tenant: tenant, User: id}
	}
	return of(tenant, id)
}

// Condemn implements trace.Erasures. The list has it before the mark does, so that somebody
// ends what is marked.
func (s *Store) Condemn(ctx context.Context, subject trace.Subject, by string, anew bool) (memory.Erasure, error) {
	const op = "trace.Condemn"
	again := -time.Now().Add(stale).UnixMilli()
	if err := s.redis.ZAdd(ctx, erasingKey, redis.Z{Score: float64(again), Member: entry(subject)}).Err(); err != nil {
		return memory.Erasure{}, s.redis.Fault(op, err)
	}
	reply, err := condemnScript.Run(ctx, s.redis, []string{markOf(subject)}, by, markKept.Milliseconds(), anew).StringSlice()
	if err != nil {
		return memory.Erasure{}, s.redis.Fault(op, err)
	}
	return told(subject, reply), nil
}

// told is what a mark says.
func told(subject trace.Subject, reply []string) memory.Erasure {
	e := memory.Erasure{Session: subject.Session, User: subject.User}
	for field := range slices.Chunk(reply, 2) {
		n, _ := strconv.ParseInt(field[1], 10, 64)
		switch name := field[0]; {
		case name == "by":
			e.By = field[1]
		case name == "began":
			e.Began = time.UnixMilli(n).UTC()
		case name == "ended":
			e.Ended = time.UnixMilli(n).UTC()
		case strings.HasPrefix(name, tally):
			e.Add(map[string]int64{strings.TrimPrefix(name, tally): n})
		}
	}
	return e
}

// EraseTraces implements trace.Erasures.
func (s *Store) EraseTraces(ctx context.Context, ref session.Ref) error {
	const op = "trace.Erase"
	subject := of(ref.Tenant, ref.Session)
	list, _ := sessionKeys(subject)
	for {
		ids, err := s.redis.ZRevRange(ctx, list, 0, maxBeat-1).Result()
		if err != nil || len(ids) == 0 {
			return s.fault(op, err)
		}
		if err := s.forgetStops(ctx, op, ref.Tenant, ids); err != nil {
			return err
		}
		at, within := errgroup.WithContext(ctx)
		at.SetLimit(atOnce)
		for _, id := range ids {
			at.Go(func() error { return s.eraseTrace(within, subject, trace.Ref{Tenant: ref.Tenant, Trace: id}) })
		}
		if err := at.Wait(); err != nil {
			return err
		}
	}
}

// eraseTrace removes a trace: its owner is kept out first, then goes what leads to it, then
// what it holds, and last its place in the list of its session, by which it is found again.
func (s *Store) eraseTrace(ctx context.Context, subject trace.Subject, ref trace.Ref) error {
	const op = "trace.Erase"
	held, err := s.fence(ctx, op, ref)
	if err != nil {
		return err
	}
	decisions, err := s.unlist(ctx, op, subject, ref, held)
	if err != nil {
		return err
	}
	had, err := stripScript.Run(ctx, s.redis, append(keys(ref), belowKey(ref)), decisions, markKept.Milliseconds()).StringSlice()
	if err != nil {
		return s.fault(op, err)
	}
	list, mark := sessionKeys(subject)
	traces := 1
	if had[0] == "0" { // it was never claimed
		traces = 0
	}
	err = strikeScript.Run(ctx, s.redis, []string{mark, list}, ref.Trace, trace.KindTraces, traces, trace.KindEvents, had[0], trace.KindDecisions, had[1]).Err()
	return s.fault(op, err)
}

// fence takes a trace from its owner, and returns what it holds.
func (s *Store) fence(ctx context.Context, op string, ref trace.Ref) ([]any, error) {
	held, err := fenceScript.Run(ctx, s.redis, []string{keys(ref)[0], belowKey(ref)}, markKept.Milliseconds()).Slice()
	return held, s.fault(op, err)
}

// rootOf is the trace with which the run of a record began; empty when that is not known.
func rootOf(held []any) string {
	body, _ := held[0].(string)
	record := &troupev1.Trace{}
	if err := proto.Unmarshal([]byte(body), record); err != nil {
		return ""
	}
	return record.GetRootTraceId()
}

// unlist removes a trace from all lists but that of its session, which it takes off that of its user, and returns how many of its
// decisions the audit led to.
func (s *Store) unlist(ctx context.Context, op string, subject trace.Subject, ref trace.Ref, held []any) (decisions int, _ error) {
	root := rootOf(held)
	pointers := map[string][]any{}
	err := s.eachPage(ctx, ref, func(page []*troupev1.Event) {
		for key, entries := range notes(ref, page) {
			for _, e := range entries {
				pointers[key] = append(pointers[key], e.Member)
			}
			decisions += len(entries)
		}
	})
	if err != nil {
		return 0, err
	}
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range slices.Sorted(maps.Keys(pointers)) {
			p.ZRem(ctx, key, pointers[key]...)
		}
		p.ZRem(ctx, indexKey(ref.Tenant), ref.Trace)
		p.ZRem(ctx, quarantineKey(ref.Tenant), ref.Trace)
		p.ZRem(ctx, rollKeys[0], member(ref))
		if root != "" {
			p.ZRem(ctx, runKey(ref.Tenant, root), ref.Trace)
		}
		if user, _ := held[3].(string); user != "" {
			p.ZRem(ctx, visitsKey(ref.Tenant, user), subject.Session)
		}
		return nil
	})
	return decisions, s.fault(op, err)
}

// forgetStops removes the wishes that traces end, with what was said about them.
func (s *Store) forgetStops(ctx context.Context, op, tenant string, ids []string) error {
	said, err := s.redis.XRange(ctx, rollKeys[1], "-", "+").Result()
	if err != nil {
		return s.fault(op, err)
	}
	among := map[string]bool{}
	for _, id := range ids {
		among[member(trace.Ref{Tenant: tenant, Trace: id})] = true
	}
	var theirs []string
	for _, stop := range said {
		if name, _ := stop.Values["trace"].(string); among[name] {
			theirs = append(theirs, stop.ID)
		}
	}
	if len(theirs) == 0 {
		return nil
	}
	return s.fault(op, s.redis.XDel(ctx, rollKeys[1], theirs...).Err())
}

// eachPage goes through the events of a trace.
func (s *Store) eachPage(ctx context.Context, ref trace.Ref, do func([]*troupev1.Event)) error {
	for after := uint64(0); ; {
		page, err := s.Events(ctx, ref, after, decisionsPage)
		if err != nil {
			return err
		}
		do(page)
		if len(page) < decisionsPage {
			return nil
		}
		after = page[len(page)-1].GetSequence()
	}
}

// Visited implements trace.Erasures.
func (s *Store) Visited(ctx context.Context, tenant, user string, until time.Time, limit int) ([]string, error) {
	ids, err := s.redis.ZRevRangeByScore(ctx, visitsKey(tenant, user), &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(until.UnixMilli(), 10), Count: int64(limit),
	}).Result()
	return ids, s.fault("trace.Visited", err)
}

// Removed implements trace.Erasures.
func (s *Store) Removed(ctx context.Context, subject trace.Subject, from string, counts map[string]int64) error {
	args := []any{from}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		args = append(args, kind, counts[kind])
	}
	err := strikeScript.Run(ctx, s.redis, []string{markOf(subject)}, args...).Err()
	if err == nil && subject.User != "" {
		err = s.redis.ZRem(ctx, visitsKey(subject.Tenant, subject.User), from).Err()
	}
	return s.fault("trace.Removed", err)
}

// Erased implements trace.Erasures.
func (s *Store) Erased(ctx context.Context, subject trace.Subject) (memory.Erasure, error) {
	const op = "trace.Erased"
	reply, err := erasedScript.Run(ctx, s.redis, []string{markOf(subject)}, markKept.Milliseconds()).StringSlice()
	if err != nil {
		return memory.Erasure{}, s.redis.Fault(op, err)
	}
	return told(subject, reply), s.offList(ctx, op, subject)
}

// fault is the failure that an error of Redis means, if there is one.
func (s *Store) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	return s.redis.Fault(op, err)
}

func (s *Store) offList(ctx context.Context, op string, subject trace.Subject) error {
	return s.fault(op, s.redis.ZRem(ctx, erasingKey, entry(subject)).Err())
}

// Unfinished implements trace.Erasures.
func (s *Store) Unfinished(ctx context.Context, limit int) (all []trace.Subject, _ error) {
	found, err := unfinishedScript.Run(ctx, s.redis, []string{erasingKey}, limit, stale.Milliseconds()).StringSlice()
	if err != nil {
		return nil, s.redis.Fault("trace.Unfinished", err)
	}
	for _, e := range found {
		all = append(all, subjectOf(e))
	}
	return all, nil
}

func wasErased(op string, ref trace.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "the session of trace %s was erased, and the trace with it; begin a new session", ref.Trace).
		With("trace_id", ref.Trace)
}
