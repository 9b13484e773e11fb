package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// op is an operation of a test history, with its times.
type op struct {
	call, answered int64
	in             input
	out            any
}

func log(ops []op) *Log {
	l := NewLog(NewClock())
	for _, o := range ops {
		l.AddUntil(o.call, o.answered, o.in, o.out)
	}
	return l
}

// Each model accepts a correct history and rejects a wrong one.
func TestModels_RejectIncorrectHistories(t *testing.T) {
	chain := func(keys ...string) (c uint64) {
		for i, key := range keys {
			c = ExtendHash(c, key, int64(2*i+2))
		}
		return c
	}
	appendA, appendB, load := Append{"s", "a"}, Append{"s", "b"}, Load{"s"}
	for name, c := range map[string]struct {
		check func(*Log) []violation.Violation
		ops   []op
		good  bool
	}{
		"an append, told twice, and loads": {CheckSessionLog, []op{
			{0, 10, load, LoadResult{}},
			{5, 20, appendA, AppendResult{2}},
			{30, 40, load, LoadResult{2, chain("a")}},
			{50, 60, appendA, AppendResult{2}},
			{55, Never, appendB, AppendResult{4}},
			{70, 80, load, LoadResult{4, chain("a", "b")}},
		}, true},
		"an acknowledged append is lost": {CheckSessionLog, []op{
			{0, 10, appendA, AppendResult{2}}, {20, 30, load, LoadResult{}},
		}, false},
		"an append happens twice": {CheckSessionLog, []op{
			{0, 10, appendA, AppendResult{2}}, {20, 30, load, LoadResult{4, chain("a", "a")}},
		}, false},
		"two appends get one place": {CheckSessionLog, []op{
			{0, 10, appendA, AppendResult{2}}, {0, 10, appendB, AppendResult{2}},
		}, false},
		"a load goes back in time": {CheckSessionLog, []op{
			{0, Never, appendA, AppendResult{2}}, {10, 20, load, LoadResult{2, chain("a")}}, {30, 40, load, LoadResult{}},
		}, false},

		"one result, and a conflict beside it": {CheckTurnRegistry, []op{
			{0, 50, TurnRequest{"k", "p"}, TurnResponse{Result: "r"}},
			{10, 40, TurnRequest{"k", "p"}, TurnResponse{Result: "r"}},
			{20, 30, TurnRequest{"k", "other"}, TurnResponse{Conflict: true}},
		}, true},
		"two results for one key": {CheckTurnRegistry, []op{
			{0, 10, TurnRequest{"k", "p"}, TurnResponse{Result: "r"}}, {20, 30, TurnRequest{"k", "p"}, TurnResponse{Result: "r2"}},
		}, false},
		"another payload gets the result": {CheckTurnRegistry, []op{
			{0, 10, TurnRequest{"k", "p"}, TurnResponse{Result: "r"}}, {20, 30, TurnRequest{"k", "other"}, TurnResponse{Result: "r"}},
		}, false},
		"a conflict with nothing": {CheckTurnRegistry, []op{
			{0, 10, TurnRequest{"k", "other"}, TurnResponse{Conflict: true}}, {20, 30, TurnRequest{"k", "p"}, TurnResponse{Result: "r"}},
		}, false},

		"a takeover fences the writer": {CheckEpochs, []op{
			{0, 10, EpochRequest{"s"}, GrantedEpoch{1}},
			{20, 30, Write{"s", 1}, WriteResult{}},
			{40, 60, EpochRequest{"s"}, GrantedEpoch{2}},
			{45, 50, Write{"s", 1}, WriteResult{}},
			{70, 80, Write{"s", 1}, WriteResult{Fenced: true}},
			{70, 80, Write{"s", 2}, WriteResult{}},
		}, true},
		"an epoch whose reply was lost fences": {CheckEpochs, []op{
			{0, 10, EpochRequest{"s"}, GrantedEpoch{1}},
			{20, Never, EpochRequest{"s"}, GrantedEpoch{}},
			{30, 40, Write{"s", 1}, WriteResult{Fenced: true}},
			{50, 60, EpochRequest{"s"}, GrantedEpoch{3}},
		}, true},
		"an old epoch writes": {CheckEpochs, []op{
			{0, 10, EpochRequest{"s"}, GrantedEpoch{1}}, {20, 30, EpochRequest{"s"}, GrantedEpoch{2}}, {40, 50, Write{"s", 1}, WriteResult{}},
		}, false},
		"an epoch is granted twice": {CheckEpochs, []op{
			{0, 10, EpochRequest{"s"}, GrantedEpoch{1}}, {20, 30, EpochRequest{"s"}, GrantedEpoch{1}},
		}, false},
		"the latest epoch is fenced": {CheckEpochs, []op{
			{0, 10, EpochRequest{"s"}, GrantedEpoch{1}}, {20, 30, Write{"s", 1}, WriteResult{Fenced: true}},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := c.check(log(c.ops))
			require.Equal(t, c.good, len(found) == 0, "%v", found)
		})
	}
}

// Partitions are checked independently, and a violation names its partition.
func TestLog_ChecksEachPartitionSeparately(t *testing.T) {
	l := log([]op{
		{0, 10, Append{"good", "a"}, AppendResult{2}},
		{20, 30, Load{"good"}, LoadResult{2, ExtendHash(0, "a", 2)}},
		{0, 10, Append{"bad", "a"}, AppendResult{2}},
		{20, 30, Load{"bad"}, LoadResult{}},
	})
	found := CheckSessionLog(l)
	require.Len(t, found, 1)
	require.Equal(t, SessionLog, found[0].Check)
	require.Contains(t, found[0].Detail, "bad: no order explains these 2 operations")
}
