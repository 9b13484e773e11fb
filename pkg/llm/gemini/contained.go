package gemini

import (
	"fmt"
	"iter"

	"google.golang.org/genai"
)

// withoutPanics returns the items of an SDK stream. The SDK panics at JSON of an unexpected form; here such a panic
// ends the stream with an error. A panic of the consumer is passed through.
func withoutPanics(stream iter.Seq2[*genai.GenerateContentResponse, error]) iter.Seq2[*genai.GenerateContentResponse, error] {
	return func(yield func(*genai.GenerateContentResponse, error) bool) {
		taken := false // the panic, if there is one, is not the SDK's
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
