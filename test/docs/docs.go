// Package docs compares what the pages of docs/ list with the code: links, flags, methods, events, metrics
// and failure modes.
package docs
