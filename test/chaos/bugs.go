package chaos

import (
	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/verify"
	"github.com/troupe-dev/troupe/test/overlay"
)

// CheckEpochReuse is the name of the check that no epoch is granted again after the stored data went back in time.
const CheckEpochReuse = "no epoch twice"

// Bug is a planted bug that the suite must find.
type Bug struct {
	ID, What   string
	FoundBy    string // name of the check that must find the bug
	Program    string // program that contains the bug
	Changes    []overlay.Change
	Redis      []string // flags of the Redis server that cause the bug
	Durability string   // durability class that the memory service requires (empty means its default)
	Contenders int      // number of callers of the memory service (0 means a few)
	StallDisk  bool     // Redis's disk is blocked before Redis is killed
}

const (
	beginLua  = "services/memory/internal/redisstore/turns/scripts/begin.lua"
	commitLua = "services/memory/internal/redisstore/turns/scripts/commit.lua"
)

// Bugs lists the planted bugs that a mesh with one orchestrator can have.
var Bugs = []Bug{
	{
		ID: "B1", What: "a commit does not look at its epoch", FoundBy: history.Epochs,
		Program: bugbuild.Memory,
		Changes: []overlay.Change{{
			File:        commitLua,
			Find:        "local refusal = check_epoch(epoch, current, turn)",
			Replacement: "local refusal = check_epoch(current, current, turn)",
		}},
	},
	{
		ID: "B2", What: "the Redis client repeats a write by itself, and a commit again is a commit more", FoundBy: history.SessionLog,
		Program: bugbuild.Memory,
		Changes: []overlay.Change{
			{
				File:        "internal/redisconn/redisconn.go",
				Find:        "o.MaxRetries = -1\n\to.DialerRetries = 1\n",
				Replacement: "o.MaxRetries = 3\n\to.DialerRetries = 1\n",
			},
			{
				File: commitLua,
				Find: "if turn[5] == sha and turn[4] == epoch then return {'ok', 'repeated'} end",
				Replacement: `if turn[5] == sha and turn[4] == epoch then
  local seq = tonumber(redis.call('HGET', KEYS[1], 'seq'))
  for i = first, #ARGV do
    seq = seq + 1
    append(seq, ARGV[i], turn[2], decimal(now_ms()))
  end
  redis.call('HSET', KEYS[1], 'seq', decimal(seq))
  return {'ok'}
end`,
			},
		},
	},
	{
		ID: "B3", What: "Redis writes to disk every second only", FoundBy: history.SessionLog,
		Program: bugbuild.Memory,
		Redis:   []string{"--appendfsync", "everysec"}, Durability: "D0", Contenders: 24, StallDisk: true,
	},
	{
		ID: "B4", What: "a commit is acknowledged before it is stored", FoundBy: history.SessionLog,
		Program: bugbuild.Memory,
		Changes: []overlay.Change{{
			File: "services/memory/internal/redisstore/turns/commit.go",
			Find: "\tr, err := t.db.RunScript(ctx, op, c.Ref, commitScript, keys, call.args(lock.Nonce, refusal)...)\n",
			Replacement: `	if true {
		go t.db.RunScript(context.WithoutCancel(ctx), op, c.Ref, commitScript, keys, call.args(lock.Nonce, refusal)...)
		return db.Reply{"ok"}, nil
	}
	r, err := t.db.RunScript(ctx, op, c.Ref, commitScript, keys, call.args(lock.Nonce, refusal)...)
`,
		}},
	},
	{
		ID: "B5", What: "a takeover keeps the epoch", FoundBy: history.Epochs,
		Program: bugbuild.Memory,
		Changes: []overlay.Change{{
			File:        beginLua,
			Find:        "local epoch = decimal(math.max(tonumber(last_epoch or 0) + 1, least))",
			Replacement: "local epoch = known and turn[4] or decimal(math.max(tonumber(last_epoch or 0) + 1, least))",
		}},
	},
	{
		ID: "B6", What: "epochs know no generation, and the data of Redis go back in time", FoundBy: CheckEpochReuse,
		Program: bugbuild.Memory,
		Changes: []overlay.Change{{
			File:        "services/memory/internal/redisstore/redisstore.go",
			Find:        "generation << generationBits",
			Replacement: "generation * 0",
		}},
	},
	{
		ID: "B7", What: "a tool that the journal knows as done is run again", FoundBy: verify.EffectNotRepeated,
		Program: bugbuild.Worker,
		Changes: []overlay.Change{{
			File:        "internal/loop/execute/restore.go",
			Find:        "recorded, found)\n\t}\n\tswitch {\n\tcase c.State == toolcall.Waiting:\n\tcase found:\n",
			Replacement: "recorded, found)\n\t}\n\tswitch {\n\tcase c.State == toolcall.Waiting:\n\tcase found && false:\n",
		}},
	},
	{
		ID: "B8", What: "the idempotency key of a tool depends on the attempt", FoundBy: verify.EffectKeepsKey,
		Program: bugbuild.Worker,
		Changes: []overlay.Change{{
			File:        "pkg/agent/internal/scope/journal.go",
			Find:        "stepjournal.CallKey(step.CallTurn(), step.Number, number)",
			Replacement: "stepjournal.CallKey(step.CallTurn()+string(rune('0'+step.Attempt)), step.Number, number)",
		}},
	},
	{
		ID: "B9", What: "a turn ends with the stream of the client that began it", FoundBy: simclients.CheckCompletion,
		Program: bugbuild.Orchestrator,
		Changes: []overlay.Change{{
			File:        "services/orchestrator/internal/turn/admit/once.go",
			Find:        "return do(context.WithoutCancel(ctx))",
			Replacement: "return do(ctx)",
		}},
	},
	{
		ID: "B10", What: "the events of a turn begin at 1 again when another worker has it", FoundBy: verify.StreamContiguous,
		Program: bugbuild.Orchestrator,
		Changes: []overlay.Change{{
			File:        "services/orchestrator/internal/trace/history.go",
			Find:        "\t\th.sequence++\n",
			Replacement: "\t\tif h.sequence++; e.GetTextRetracted() != nil {\n\t\t\th.sequence = 1\n\t\t}\n",
		}},
	},
	{
		ID: "B15", What: "a tool that may run once is run again when in doubt", FoundBy: verify.EffectAtMostOnce,
		Program: bugbuild.Worker,
		Changes: []overlay.Change{{
			File:        "internal/loop/toolcall/call.go",
			Find:        "return log.HasIntent(c.JournalEntry.Number) && !c.SpansTurns()",
			Replacement: "return false && log.HasIntent(c.JournalEntry.Number) && !c.SpansTurns()",
		}},
	},
}
