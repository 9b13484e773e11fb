package trace

import (
	"slices"

	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Limits of one event log (guarantees 2.5, F21).
const (
	MaxEvents          = 4096
	MaxBytes           = 16 << 20 // bytes of durable events
	maxEphemeralBytes  = 16 << 20 // bytes of ephemeral events in memory; later ones are dropped
	eventOverheadBytes = 256      // bytes that an event takes in addition to its fields
)

// history holds the events of a log in memory, in the order in which they happened. The zero value is an empty
// history. The lock of the log protects it.
type history struct {
	events            []*troupev1.Event // durable and ephemeral events
	earlierEpochCount int               // events[:earlierEpochCount] belong to earlier epochs of the turn
	visibleCount      int               // events[:visibleCount] are stored or ephemeral, so watchers may see them
	sequence          uint64            // sequence of the last durable event
	durableBytes      int               // bytes of the durable events
	ephemeralBytes    int               // bytes that ephemeral events take
}

// addStored adds stored events.
func (h *history) addStored(page []*troupev1.Event) {
	h.events = append(h.events, page...)
	for _, e := range page {
		h.durableBytes += proto.Size(e)
	}
	h.sequence = page[len(page)-1].GetSequence()
	h.visibleCount = len(h.events)
}

// add adds an event, and numbers it when it is durable. It reports whether the event was kept. Ephemeral events
// that are empty or exceed the limit are dropped.
func (h *history) add(e *troupev1.Event) bool {
	if size, ephemeral := measureEphemeral(e); ephemeral {
		h.ephemeralBytes += size
		if size == 0 || h.ephemeralBytes > maxEphemeralBytes {
			return false
		}
	} else {
		h.sequence++
		e.Sequence = h.sequence
		h.durableBytes += proto.Size(e)
	}
	h.events = append(h.events, e)
	return true
}

// isFull reports whether the history has reached the limit of durable events.
func (h *history) isFull() bool { return h.sequence >= MaxEvents || h.durableBytes >= MaxBytes }

// pendingEvents returns the durable events that are not stored yet, and how many events become visible once they
// are.
func (h *history) pendingEvents() (batch []*troupev1.Event, upto int) {
	for _, e := range h.events[h.visibleCount:] {
		if e.GetSequence() > 0 {
			batch = append(batch, e)
		}
	}
	return batch, len(h.events)
}

// indexAfter returns the index of the first event after the given sequence.
func (h *history) indexAfter(sequence uint64) (int, error) {
	if err := checkRange(sequence, h.sequence); err != nil || sequence == 0 {
		return 0, err
	}
	i := slices.IndexFunc(h.events, func(e *troupev1.Event) bool { return e.GetSequence() == sequence })
	return i + 1, nil
}

// measureEphemeral reports whether an event is ephemeral, and how many bytes it takes in memory (0 for an empty
// event). The size is the whole event's, because the whole event is kept and not only its text.
func measureEphemeral(e *troupev1.Event) (size int, ephemeral bool) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_ToolProgress:
		size = proto.Size(p.ToolProgress)
	case *troupev1.Event_TextDelta:
		size = len(p.TextDelta.GetText())
	default:
		return 0, false
	}
	if size == 0 {
		return 0, true
	}
	return eventOverheadBytes + proto.Size(e), true
}
