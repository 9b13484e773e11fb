package console

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Age formats the time since a moment, such as 5m or 3d.
func Age(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return time.Since(t.AsTime()).Round(time.Second).String()
}

// OrDash returns the text, or a dash if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// TimeOfDay formats a time. It adds the date if the time is not today.
func TimeOfDay(t *timestamppb.Timestamp) string {
	at := t.AsTime().Local()
	if at.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// TimeLeft formats the time that is left until t.
func TimeLeft(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	if d := time.Until(t.AsTime()); d > 0 {
		return max(d.Round(time.Second), time.Second).String() + " left"
	}
	return "too late"
}

// Count formats a number with its noun, such as "1 turn" or "2 turns".
func Count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}

// Duration formats a duration with about three significant digits.
func Duration(d *durationpb.Duration) string {
	switch v := d.AsDuration(); {
	case v < time.Millisecond:
		return v.Round(time.Microsecond).String()
	case v < time.Second:
		return v.Round(100 * time.Microsecond).String()
	default:
		return v.Round(10 * time.Millisecond).String()
	}
}
