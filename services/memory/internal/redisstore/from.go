package redisstore

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
)

//go:embed scripts/from.lua
var fromSource string

// firstFile is the place of the first argument behind those that each turn has.
const firstFile = 28

// fromKeys are the keys that a turn needs which goes on from an earlier one.
func fromKeys(b memory.Begin) predecessor {
	switch {
	case b.Resumes != "":
		return predecessor{keys: []string{"turn:" + b.Resumes}}
	case b.Copy != nil:
		return predecessor{keys: []string{"state"}}
	default:
		return predecessor{}
	}
}

// journalsOf is fromKeys with the journals of the steps that the script has named.
func journalsOf(b memory.Begin, steps string) predecessor {
	p := fromKeys(b)
	p.name = steps
	for step := range strings.SplitSeq(steps, ",") {
		n := int(number(step))
		p.keys = append(p.keys, journalOf(b.Resumes, n), journalOf(b.TurnID, n))
	}
	return p
}

// placed is where arguments begin; 0 when there are none.
func placed(args []any, at int) int {
	if len(args) == 0 {
		return 0
	}
	return at
}

// fromArgs are those of scripts/from.lua; none for a turn that begins anew.
func fromArgs(b memory.Begin) ([]any, error) {
	if b.Resumes == "" && b.Copy == nil {
		return nil, nil
	}
	args := []any{len(b.Inherited)}
	for _, r := range b.InheritedBy() {
		result, err := encoding.Marshal(wire.ResultToProto(r))
		if err != nil {
			return nil, err
		}
		args = append(args, r.Step, result)
	}
	if b.Copy == nil {
		return append(args, "0", journalKept.Milliseconds()), nil
	}
	summary, history := b.Copy.Summary()
	flag, text := "0", ""
	if summary != nil {
		flag, text = "1", summary.Text
	}
	messages, size := []any{}, 0
	for _, m := range slices.Concat(history, b.Copy.Said) {
		stored, err := body(m)
		if err != nil {
			return nil, err
		}
		messages, size = append(messages, max(0, m.Time.UnixMilli()), stored), size+conversation.Size(m)
	}
	args = append(args, "1", flag, text, size, len(history), len(b.Copy.Said))
	return append(append(args, messages...), pairs(b.Copy.State)...), nil
}
