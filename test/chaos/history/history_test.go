package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/violation"
)

// op is an operation of a test, with its times.
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
func TestModels_SeparateGoodHistoriesFromBad(t *testing.T) {
	chain := func(keys ...string) (c uint64) {
		for i, key := range keys {
			c = Chain(c, key, int64(2*i+2))
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
			{0, 10, load, Loaded{}},
			{5, 20, appendA, Appended{2}},
			{30, 40, load, Loaded{2, chain("a")}},
			{50, 60, appendA, Appended{2}},
			{55, Never, appendB, Appended{4}},
			{70, 80, load, Loaded{4, chain("a", "b")}},
		}, true},
		"an acknowledged append is lost": {CheckSessionLog, []op{
			{0, 10, appendA, Appended{2}}, {20, 30, load, Loaded{}},
		}, false},
		"an append happens twice": {CheckSessionLog, []op{
			{0, 10, appendA, Appended{2}}, {20, 30, load, Loaded{4, chain("a", "a")}},
		}, false},
		"two appends get one place": {CheckSessionLog, []op{
			{0, 10, appendA, Appended{2}}, {0, 10, appendB, Appended{2}},
		}, false},
		"a load goes back in time": {CheckSessionLog, []op{
			{0, Never, appendA, Appended{2}}, {10, 20, load, Loaded{2, chain("a")}}, {30, 40, load, Loaded{}},
		}, false},

		"one result, and a conflict beside it": {CheckTurnRegistry, []op{
			{0, 50, Request{"k", "p"}, Response{Result: "r"}},
			{10, 40, Request{"k", "p"}, Response{Result: "r"}},
			{20, 30, Request{"k", "other"}, Response{Conflict: true}},
		}, true},
		"two results for one key": {CheckTurnRegistry, []op{
			{0, 10, Request{"k", "p"}, Response{Result: "r"}}, {20, 30, Request{"k", "p"}, Response{Result: "r2"}},
		}, false},
		"another payload gets the result": {CheckTurnRegistry, []op{
			{0, 10, Request{"k", "p"}, Response{Result: "r"}}, {20, 30, Request{"k", "other"}, Response{Result: "r"}},
		}, false},
		"a conflict with nothing": {CheckTurnRegistry, []op{
			{0, 10, Request{"k", "other"}, Response{Conflict: true}}, {20, 30, Request{"k", "p"}, Response{Result: "r"}},
		}, false},

		"a takeover fences the writer": {CheckEpochs, []op{
			{0, 10, Grant{"s"}, Granted{1}},
			{20, 30, Write{"s", 1}, Written{}},
			{40, 60, Grant{"s"}, Granted{2}},
			{45, 50, Write{"s", 1}, Written{}},
			{70, 80, Write{"s", 1}, Written{Fenced: true}},
			{70, 80, Write{"s", 2}, Written{}},
		}, true},
		"an epoch whose reply was lost fences": {CheckEpochs, []op{
			{0, 10, Grant{"s"}, Granted{1}},
			{20, Never, Grant{"s"}, Granted{}},
			{30, 40, Write{"s", 1}, Written{Fenced: true}},
			{50, 60, Grant{"s"}, Granted{3}},
		}, true},
		"an old epoch writes": {CheckEpochs, []op{
			{0, 10, Grant{"s"}, Granted{1}}, {20, 30, Grant{"s"}, Granted{2}}, {40, 50, Write{"s", 1}, Written{}},
		}, false},
		"an epoch is granted twice": {CheckEpochs, []op{
			{0, 10, Grant{"s"}, Granted{1}}, {20, 30, Grant{"s"}, Granted{1}},
		}, false},
		"the latest epoch is fenced": {CheckEpochs, []op{
			{0, 10, Grant{"s"}, Granted{1}}, {20, 30, Write{"s", 1}, Written{Fenced: true}},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := c.check(log(c.ops))
			require.Equal(t, c.good, len(found) == 0, "%v", found)
		})
	}
}

// Parts are independent, and a violation names its part.
func TestLog_ChecksEachPartitionSeparately(t *testing.T) {
	l := log([]op{
		{0, 10, Append{"good", "a"}, Appended{2}},
		{20, 30, Load{"good"}, Loaded{2, Chain(0, "a", 2)}},
		{0, 10, Append{"bad", "a"}, Appended{2}},
		{20, 30, Load{"bad"}, Loaded{}},
	})
	found := CheckSessionLog(l)
	require.Len(t, found, 1)
	require.Equal(t, SessionLog, found[0].Check)
	require.Contains(t, found[0].Detail, "bad: no order explains these 2 operations")
}
