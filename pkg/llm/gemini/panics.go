package gemini

import (
	"fmt"
	"iter"

	"google.golang.org/genai"
)

// withoutPanics yields the items of an SDK stream. The SDK panics on JSON of an unexpected form. Such a panic ends
// the stream with an error, but a panic of the consumer continues.
func withoutPanics(stream iter.Seq2[*genai.GenerateContentResponse, error]) iter.Seq2[*genai.GenerateContentResponse, error] {
	return func(yield func(*genai.GenerateContentResponse, error) bool) {
		taken := false // yield is running, so a panic comes from the consumer
		defer func() {
			if taken {
				return
			}
			if p := recover(); p != nil {
				yield(nil, fmt.Errorf("the reply has a shape that the SDK cannot read: %v", p))
			}
		}()
		for piece, err := range stream {
			taken = true
			if !yield(piece, err) {
				return
			}
			taken = false
		}
	}
}
