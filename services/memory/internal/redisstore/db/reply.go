package db

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
)

// Reply is the reply of a script: a status, followed by values. The methods return the zero value for a missing
// value.
type Reply []any

// Status returns the status, which is the first string of the reply.
func (r Reply) Status() string { return r.Text(0) }

// Text returns the string at index i.
func (r Reply) Text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

// Integer returns the number at index i.
func (r Reply) Integer(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

// Array returns the array at index i.
func (r Reply) Array(i int) Reply {
	if i >= len(r) {
		return nil
	}
	l, _ := r[i].([]any)
	return l
}

// Hash returns the fields of the hash at index i.
func (r Reply) Hash(i int) map[string]string {
	fields := map[string]string{}
	flat := r.Array(i)
	for f := 0; f+1 < len(flat); f += 2 {
		fields[flat.Text(f)] = flat.Text(f + 1)
	}
	return fields
}

// FieldsByName maps the names of the requested fields to the values in the reply.
func (r Reply) FieldsByName(fields []string) map[string]string {
	named := make(map[string]string, len(fields))
	for i, name := range fields {
		named[name] = r.Text(i)
	}
	return named
}

// Encoding encodes equal messages as equal bytes. A repeated commit is recognized by its bytes.
var Encoding = proto.MarshalOptions{Deterministic: true}

// ParseNumber parses a decimal number that a script wrote (0 if there is none).
func ParseNumber(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// ParseTime parses a time in milliseconds that a script wrote (the zero time if there is none).
func ParseTime(ms string) time.Time {
	if ms == "" {
		return time.Time{}
	}
	return time.UnixMilli(ParseNumber(ms)).UTC()
}
