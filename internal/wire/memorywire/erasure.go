package memorywire

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/wire/convert"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// ErasureToProto converts the report of an erasure. It keys the counts by the name of the kind.
func ErasureToProto(e memory.ErasureReport) *troupev1.ErasureReceipt {
	p := &troupev1.ErasureReceipt{
		SessionId: e.Session, UserId: e.User, By: e.RequestedBy, Began: convert.TimeToProto(e.Began), Ended: convert.TimeToProto(e.Ended),
	}
	for _, kind := range slices.Sorted(maps.Keys(e.Removed)) {
		p.Removed = append(p.Removed, &troupev1.ErasedItems{Kind: kind, Count: e.Removed[kind]})
	}
	for _, r := range e.Remainders {
		p.Remains = append(p.Remains, &troupev1.ErasureRemainder{What: r.What, Why: r.Why, Until: convert.TimeToProto(r.Until)})
	}
	return p
}

// ErasureFromProto is the inverse of ErasureToProto.
func ErasureFromProto(p *troupev1.ErasureReceipt) memory.ErasureReport {
	e := memory.ErasureReport{
		Session: p.GetSessionId(), User: p.GetUserId(), RequestedBy: p.GetBy(),
		Began: convert.TimeFromProto(p.GetBegan()), Ended: convert.TimeFromProto(p.GetEnded()),
	}
	for _, items := range p.GetRemoved() {
		e.Add(map[string]int64{items.GetKind(): items.GetCount()})
	}
	for _, r := range p.GetRemains() {
		e.Remainders = append(e.Remainders, memory.Remainder{What: r.GetWhat(), Why: r.GetWhy(), Until: convert.TimeFromProto(r.GetUntil())})
	}
	return e
}
