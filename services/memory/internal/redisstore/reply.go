package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// reply is what a script returns: a status, and then what belongs to it.
type reply []any

func (r reply) status() string { return r.text(0) }

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

// integer is what a script returned as a number.
func (r reply) integer(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

func (r reply) list(i int) []any {
	if i >= len(r) {
		return nil
	}
	l, _ := r[i].([]any)
	return l
}

// fields reads a hash at place i.
func (r reply) fields(i int) map[string]string {
	fields := map[string]string{}
	flat := reply(r.list(i))
	for f := 0; f+1 < len(flat); f += 2 {
		fields[flat.text(f)] = flat.text(f + 1)
	}
	return fields
}

// maxSteps is how many a turn may have. What is stored is not trusted to keep to it: a number
// that went wrong would hold up whoever reads the turn.
const maxSteps = 50

// turn reads the hash of a turn at place i.
func (r reply) turn(i int, id string) (session.Turn, error) {
	fields := r.fields(i)
	t := session.Turn{
		ID:       id,
		Trace:    fields["trace"],
		Number:   int(number(fields["number"])),
		Outcome:  session.Outcome(fields["outcome"]),
		Epoch:    number(fields["epoch"]),
		Attempt:  int(number(fields["attempt"])),
		Sequence: number(fields["seq"]),

		Continues: fields["continues"], Origin: fields["origin"],
	}
	for n := range min(number(fields["steps"]), maxSteps) {
		stored, ok := fields["result"+strconv.FormatInt(n+1, 10)]
		if !ok {
			continue
		}
		var result troupev1.StepResult
		if err := proto.Unmarshal([]byte(stored), &result); err != nil {
			return t, fmt.Errorf("result of step %d of turn %s: %w", n+1, id, err)
		}
		t.Steps = append(t.Steps, wire.ResultFromProto(&result))
	}
	if stored, ok := fields["failure"]; ok {
		var f troupev1.Failure
		if err := proto.Unmarshal([]byte(stored), &f); err != nil {
			return t, fmt.Errorf("failure of turn %s: %w", id, err)
		}
		t.Failure = grpcfailure.FromProto(&f)
	}
	var answers troupev1.Answers
	if err := proto.Unmarshal([]byte(fields["answers"]), &answers); err != nil {
		return t, fmt.Errorf("answers of turn %s: %w", id, err)
	}
	t.Answers = wire.AnswersFromProto(answers.GetAnswers())
	return t, nil
}

// entries reads those of scripts/read.lua at place i, in their order.
func (r reply) entries(i int) ([]conversation.Message, error) {
	flat := reply(r.list(i))
	messages := make([]conversation.Message, len(flat)/2)
	for n := range messages {
		var err error
		if messages[n], err = message(flat.text(2*n), flat.text(2*n+1)); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// message reads an entry of the log.
func message(id, entry string) (conversation.Message, error) {
	turn, entry, _ := strings.Cut(entry, " ")
	at, body, _ := strings.Cut(entry, " ")
	var stored troupev1.Message
	if err := proto.Unmarshal([]byte(body), &stored); err != nil {
		return conversation.Message{}, fmt.Errorf("message %s: %w", id, err)
	}
	m := wire.MessageFromProto(&stored)
	sequence, _, _ := strings.Cut(id, "-")
	m.Sequence, m.Turn, m.Time = number(sequence), int(number(turn)), moment(at)
	return m, nil
}

// body is what the log holds of a message: what the store knows itself is left out.
func body(m conversation.Message) ([]byte, error) {
	m = m.Stored()
	m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
	return encoding.Marshal(wire.MessageToProto(m))
}

// encoding gives equal values equal bytes, which is how a repeated commit is known.
var encoding = proto.MarshalOptions{Deterministic: true}

// number reads a decimal that a script wrote; what is not there is 0.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func moment(ms string) time.Time {
	if ms == "" {
		return time.Time{}
	}
	return time.UnixMilli(number(ms)).UTC()
}
