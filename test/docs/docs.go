// Package docs compares what the pages of docs/ list with the code: links, flags, methods, events, metrics
// and failure modes. With the tag docs it also runs the shell blocks of every page.
package docs
