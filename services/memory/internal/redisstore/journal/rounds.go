package journal

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

//go:embed scripts/drop_rounds.lua
var dropRoundsSource string

var dropRoundsScript = db.Register("drop_rounds", dropRoundsSource)

// roundsBatch is how many steps of a history one round trip reads.
const roundsBatch = 100

// storedRounds is one step in the history of an agent: its rounds, some of whose messages are in the journal of the step.
type storedRounds struct {
	id      string // id in the stream of the agent: <sequence of the message before>-<number>
	bytes   int    // size of the rounds, including the journal entries that they name
	journal string // name of the key of the journal
	rounds  conversation.Rounds
	stored  []memory.RoundMessage
}

// EncodeRounds returns the rounds of a commit as the history stores them, and the fields of the journal that they name,
// separated by spaces.
func EncodeRounds(rounds []memory.RoundMessage) (encoded []byte, named string, err error) {
	if len(rounds) == 0 {
		return nil, "", nil
	}
	list := &troupev1.CommitStepRequest{Rounds: memorywire.RoundsToProto(rounds)}
	var fields []string
	for i, r := range rounds {
		m := r.WithoutData()
		m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
		list.Rounds[i].Message = wire.MessageToProto(m)
		if r.Entry > 0 {
			fields = append(fields, entryField(execution.Entry{Number: r.Entry, Phase: execution.Done}))
		}
	}
	encoded, err = db.Encoding.Marshal(list)
	return encoded, strings.Join(fields, " "), err
}

// NumberOf returns the number of an entry from its field in the hash of a journal.
func NumberOf(field string) int {
	number, _, _ := strings.Cut(field, ":")
	return int(db.ParseNumber(number))
}

// decodeRounds reads one step of a history: turn number, step, bytes, id of the turn, and the rounds.
func decodeRounds(id, text string) (storedRounds, error) {
	parts := strings.SplitN(text, " ", 5)
	if len(parts) < 5 {
		return storedRounds{}, errors.New("a step in the history of an agent is incomplete")
	}
	var list troupev1.CommitStepRequest
	if err := proto.Unmarshal([]byte(parts[4]), &list); err != nil {
		return storedRounds{}, err
	}
	after, _, _ := strings.Cut(id, "-")
	step := int(db.ParseNumber(parts[1]))
	return storedRounds{
		id: id, bytes: int(db.ParseNumber(parts[2])), journal: db.JournalName(parts[3], step),
		rounds: conversation.Rounds{Turn: int(db.ParseNumber(parts[0])), Step: step, After: db.ParseNumber(after)},
		stored: memorywire.RoundsFromProto(list.GetRounds()),
	}, nil
}

// LoadRounds implements memory.Journal. It reads the history first, and then the entries that it names.
func (j *Journal) LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error) {
	const op = "memory.LoadRounds"
	latest, err := j.latestRounds(ctx, op, ref, agent, from, before)
	if err != nil || len(latest) == 0 {
		return nil, err
	}
	entries := make([]*redis.SliceCmd, len(latest))
	_, err = j.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, s := range latest {
			if fields := namedFields(s.stored); len(fields) > 0 {
				entries[i] = p.HMGet(ctx, db.Key(ref, s.journal), fields...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, j.db.Failure(op, err)
	}
	var all []conversation.Rounds
	for i, s := range latest {
		var found []execution.Entry
		if entries[i] != nil {
			if found, err = decodeEntries(op, db.Reply(entries[i].Val())); err != nil {
				return nil, err
			}
		}
		if s.resolve(found) {
			all = append(all, s.rounds)
		}
	}
	return all, nil
}

// latestRounds reads the history of an agent from its end: the latest steps before another one (nil means all) that have
// at most MaxWindowBytes together, oldest first.
func (j *Journal) latestRounds(ctx context.Context, op string, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]storedRounds, error) {
	var latest []storedRounds
	key, to, bytes := db.Key(ref, db.RoundsName(agent)), "+", 0
	if before != nil {
		to = strconv.FormatInt(before.After, 10) // with all steps that follow the same message
	}
	for {
		var meta *redis.SliceCmd
		var read *redis.XMessageSliceCmd
		_, err := j.db.Pipelined(ctx, func(p redis.Pipeliner) error {
			meta = p.HMGet(ctx, db.Key(ref, "meta"), db.StatusFields...)
			read = p.XRevRangeN(ctx, key, to, strconv.FormatInt(from, 10)+"-0", roundsBatch)
			return nil
		})
		if err != nil {
			return nil, j.db.Failure(op, err)
		}
		if err := db.CheckReader(ctx, op, ref, db.Reply(meta.Val()).FieldsByName(db.StatusFields)); err != nil {
			return nil, err
		}
		for _, m := range read.Val() {
			text, _ := m.Values["m"].(string)
			s, err := decodeRounds(m.ID, text)
			if err != nil {
				return nil, db.NewUnreadableError(op, err)
			}
			to = "(" + m.ID
			if before != nil && s.rounds.Compare(*before) >= 0 {
				continue
			}
			// Steps that follow the same message are stored in the order of their commits. All of them are needed
			// to know which are the latest.
			if bytes > memory.MaxWindowBytes && s.rounds.After != latest[len(latest)-1].rounds.After {
				return latestThatFit(latest), nil
			}
			latest, bytes = append(latest, s), bytes+s.bytes
		}
		if len(read.Val()) < roundsBatch {
			return latestThatFit(latest), nil
		}
	}
}

// latestThatFit sorts rounds and returns the latest that have at most MaxWindowBytes together.
func latestThatFit(all []storedRounds) []storedRounds {
	slices.SortStableFunc(all, func(a, b storedRounds) int { return a.rounds.Compare(b.rounds) })
	bytes := 0
	for i, s := range slices.Backward(all) {
		if bytes += s.bytes; bytes > memory.MaxWindowBytes {
			return all[i+1:]
		}
	}
	return all
}

// resolve fills in the messages from the entries. It reports false when one is missing: the rounds would not be whole.
func (s *storedRounds) resolve(entries []execution.Entry) bool {
	for _, r := range s.stored {
		m, ok := r.Resolve(entries)
		if !ok {
			return false
		}
		s.rounds.Messages = append(s.rounds.Messages, m)
	}
	return true
}

// namedFields returns the fields of the journal that rounds name.
func namedFields(rounds []memory.RoundMessage) []string {
	var fields []string
	for _, r := range rounds {
		if r.Entry > 0 {
			fields = append(fields, entryField(execution.Entry{Number: r.Entry, Phase: execution.Done}))
		}
	}
	return fields
}

// ParseAgents returns the names of the agents that have rounds, as the meta hash of a session lists them.
func ParseAgents(list string) []string { return strings.Fields(list) }

// RoundKeys returns all keys of the histories of the given agents: their lists, and the journals that these name.
func (j *Journal) RoundKeys(ctx context.Context, op string, ref session.Ref, agents []string) ([]string, error) {
	var keys []string
	for _, agent := range agents {
		err := j.scanRounds(ctx, op, ref, agent, "+", func(batch []storedRounds) error {
			for _, s := range batch {
				keys = append(keys, db.Key(ref, s.journal))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		keys = append(keys, db.Key(ref, db.RoundsName(agent)))
	}
	return keys, nil
}

// DropRounds removes the rounds that follow a message up to the given sequence. It may be repeated after an interruption.
func (j *Journal) DropRounds(ctx context.Context, op string, ref session.Ref, agents []string, last int64) error {
	for _, agent := range agents {
		err := j.scanRounds(ctx, op, ref, agent, strconv.FormatInt(last, 10), func(batch []storedRounds) error {
			keys, args := []string{db.Key(ref, "meta"), db.Key(ref, db.RoundsName(agent))}, []any{agent}
			for _, s := range batch {
				keys, args = append(keys, db.Key(ref, s.journal)), append(args, s.id, s.bytes)
			}
			_, err := j.db.RunScript(ctx, op, ref, dropRoundsScript, keys, args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scanRounds reads the history of an agent from its beginning up to the id to, in batches.
func (j *Journal) scanRounds(ctx context.Context, op string, ref session.Ref, agent, to string, each func([]storedRounds) error) error {
	from := "-"
	for {
		read, err := j.db.XRangeN(ctx, db.Key(ref, db.RoundsName(agent)), from, to, roundsBatch).Result()
		if err != nil {
			return j.db.Failure(op, err)
		}
		var batch []storedRounds
		for _, m := range read {
			text, _ := m.Values["m"].(string)
			s, err := decodeRounds(m.ID, text)
			if err != nil {
				return db.NewUnreadableError(op, err)
			}
			batch, from = append(batch, s), "("+m.ID
		}
		if len(batch) > 0 {
			if err := each(batch); err != nil {
				return err
			}
		}
		if len(read) < roundsBatch {
			return nil
		}
	}
}
