// Package messages encodes messages for the log of a session, and reads the log in parts.
package messages

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

// ReadSource is the Lua source in front of the scripts that read the log. It defines read.
//
//go:embed scripts/read.lua
var ReadSource string

// MaxReadBytes limits how many bytes of a log a script reads. It covers the text that one call returns and what is
// stored with each message.
const MaxReadBytes = memory.MaxWindowBytes + memory.MaxWindow*256

// EncodeBody encodes a message for the log, without its sequence, turn and time, which are stored
// separately.
func EncodeBody(m conversation.Message) ([]byte, error) {
	m = m.WithoutData()
	m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
	return db.Encoding.Marshal(wire.MessageToProto(m))
}

// DecodeEntry decodes an entry of the log, which has the number of the turn, the time and the body.
func DecodeEntry(id, entry string) (conversation.Message, error) {
	turn, entry, _ := strings.Cut(entry, " ")
	at, body, _ := strings.Cut(entry, " ")
	var stored troupev1.Message
	if err := proto.Unmarshal([]byte(body), &stored); err != nil {
		return conversation.Message{}, fmt.Errorf("message %s: %w", id, err)
	}
	m := wire.MessageFromProto(&stored)
	sequence, _, _ := strings.Cut(id, "-")
	m.Sequence, m.Turn, m.Time = db.ParseNumber(sequence), int(db.ParseNumber(turn)), db.ParseTime(at)
	return m, nil
}

// DecodeEntries decodes the entries that read.lua returned, in the same order.
func DecodeEntries(entries db.Reply) ([]conversation.Message, error) {
	messages := make([]conversation.Message, len(entries)/2)
	for n := range messages {
		var err error
		if messages[n], err = DecodeEntry(entries.Text(2*n), entries.Text(2*n+1)); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// SummaryMessage returns the message that replaces the messages removed by a compaction.
func SummaryMessage(sequence int64, text string) conversation.Message {
	return conversation.Message{Sequence: sequence, Role: conversation.RoleSummary, Text: text}
}

// ReverseFitting reverses messages that were read newest first. It drops the oldest messages that would exceed the
// size of one reply.
func ReverseFitting(messages []conversation.Message) []conversation.Message {
	messages = messages[:conversation.CountFitting(slices.Values(messages), memory.MaxWindowBytes)]
	slices.Reverse(messages)
	return messages
}

// scanBatchSize is how many messages ScanLog reads in one round trip. They have at most 25 MiB.
const scanBatchSize = 100

// ScanLog calls each for the messages in the log of a session, oldest first, until each returns false.
func ScanLog(ctx context.Context, d *db.DB, op string, ref session.Ref, each func(conversation.Message) bool) error {
	return scan(op, "-", d, each, func(from string) ([]redis.XMessage, error) {
		return d.XRangeN(ctx, db.Key(ref, "log"), from, "+", scanBatchSize).Result()
	})
}

// ScanSaved calls each for the saved messages in the log of a session, latest first, until each returns false. It reads
// which messages are saved together with the latest ones, in one round trip.
func ScanSaved(ctx context.Context, d *db.DB, op string, ref session.Ref, each func(conversation.Message) bool) error {
	last := int64(math.MaxInt64)
	read := func(from string) ([]redis.XMessage, error) {
		var saved *redis.StringCmd
		var page *redis.XMessageSliceCmd
		_, err := d.Pipelined(ctx, func(p redis.Pipeliner) error {
			page, saved = p.XRevRangeN(ctx, db.Key(ref, "log"), from, "-", scanBatchSize), p.HGet(ctx, db.Key(ref, "meta"), "saved")
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		if saved.Err() == nil {
			last = db.ParseNumber(saved.Val())
		}
		return page.Result()
	}
	return scan(op, "+", d, func(m conversation.Message) bool { return m.Sequence > last || each(m) }, read)
}

// scan reads a log page by page, from an entry on.
func scan(op, from string, d *db.DB, each func(conversation.Message) bool, read func(from string) ([]redis.XMessage, error)) error {
	for {
		entries, err := read(from)
		if err != nil {
			return d.Failure(op, err)
		}
		for _, entry := range entries {
			text, _ := entry.Values["m"].(string)
			m, err := DecodeEntry(entry.ID, text)
			if err != nil {
				return db.NewUnreadableError(op, err)
			}
			if !each(m) {
				return nil
			}
		}
		if len(entries) < scanBatchSize {
			return nil
		}
		from = "(" + entries[len(entries)-1].ID
	}
}
