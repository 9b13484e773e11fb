package redisstore

import (
	"context"
	_ "embed"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/prelude.lua
var prelude string

//go:embed scripts/turn.lua
var turnSource string

//go:embed scripts/delta.lua
var deltaSource string

// script is made of the prelude and the sources. They know the schema.
func script(sources ...string) *redis.Script {
	return redis.NewScript("local schema, party = '" + schema + "', '" + conversation.PartyPrefix + "'\n" + prelude + strings.Join(sources, ""))
}

// run runs a script, in one round trip unless Redis has to be sent its text first. What bars
// everybody from a session is an error; the other refusals are for the caller.
func (s *Store) run(ctx context.Context, op string, ref session.Ref, script *redis.Script, keys []string, args ...any) (reply, error) {
	r, err := script.Run(ctx, s.redis, keys, args...).Slice()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	return r, barred(op, ref, r)
}

// look is run for a script that only reads.
func (s *Store) look(ctx context.Context, op string, ref session.Ref, script *redis.Script, keys []string, args ...any) (reply, error) {
	r, err := script.RunRO(ctx, s.redis, keys, args...).Slice()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	return r, barred(op, ref, r)
}

// key is a key of a session.
func key(ref session.Ref, name string) string {
	return "m:{" + ref.Tenant + "/" + ref.Session + "}:" + name
}

// keys are the KEYS of a script of a turn: meta, log and turn, and then its own.
func keys(ref session.Ref, turnID string, more ...string) []string {
	ks := []string{key(ref, "meta"), key(ref, "log"), key(ref, "turn:"+turnID)}
	for _, name := range more {
		ks = append(ks, key(ref, name))
	}
	return ks
}

// fence is the epoch of who writes, as scripts/turn.lua takes it: with the step of a worker behind it.
func fence(ctx context.Context, epoch int64) string {
	text := strconv.FormatInt(epoch, 10)
	if step := memory.HolderOf(ctx).Step; step > 0 {
		text += "/" + strconv.Itoa(step)
	}
	return text
}

// journalOf is the key of a step's journal.
func journalOf(turnID string, step int) string {
	return "jrnl:" + turnID + ":" + strconv.Itoa(step)
}
