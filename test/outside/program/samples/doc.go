// Package samples has the samples of the five documents that Troupe is made from, written again as an author would: outside of
// the module, with public packages only. Each test says in its comment which sample it is and where it had to differ.
package samples
