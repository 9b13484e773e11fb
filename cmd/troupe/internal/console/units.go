package console

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// FormatAge formats the time since t, such as 5m or 3d.
func FormatAge(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return time.Since(t.AsTime()).Round(time.Second).String()
}

// OrDash returns the text, or a dash if the text is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// FormatTime formats the time of day. It adds the date if the time is not today.
func FormatTime(t *timestamppb.Timestamp) string {
	at := t.AsTime().Local()
	if at.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// FormatTimeLeft formats the time that remains until t.
func FormatTimeLeft(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	if d := time.Until(t.AsTime()); d > 0 {
		return max(d.Round(time.Second), time.Second).String() + " left"
	}
	return "too late"
}

// FormatCount formats a number with its noun, such as "1 turn" or "2 turns".
func FormatCount(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}

// FormatDuration formats a duration with about three significant digits.
func FormatDuration(d *durationpb.Duration) string {
	switch v := d.AsDuration(); {
	case v < time.Millisecond:
		return v.Round(time.Microsecond).String()
	case v < time.Second:
		return v.Round(100 * time.Microsecond).String()
	default:
		return v.Round(10 * time.Millisecond).String()
	}
}
