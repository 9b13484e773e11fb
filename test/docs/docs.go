// Package docs compares the lists on the pages of docs/ with the code: links, flags, methods, events, metrics and
// failure modes. With the build tag docs it also runs the shell blocks of every page.
package docs
