package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
)

// deltaCount is the number of text deltas in an answer of the benchmark.
const deltaCount = 500

// streamReader reads one answer. It returns when the first text arrived, and how many texts there were.
type streamReader func(ctx context.Context) (first time.Time, texts int, err error)

// BenchmarkStream reads the same stream with hand-written code and with the adapter, which includes retries and
// prices. The allocations of the server count too, so only compare the two readers with each other.
func BenchmarkStream(b *testing.B) {
	var say []string
	for range deltaCount {
		say = append(say, "word ")
	}
	stream := (openaitest.Wire{}).Stream(llmtest.Reply{Texts: say})
	head := bytes.Join(slices.Concat(stream.Begin, stream.Body[:1]), nil)
	rest := bytes.Join(slices.Concat(stream.Body[1:], stream.End), nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(head)
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(rest)
	}))
	defer s.Close()
	m, err := openai.New("openai/gpt-5", openai.Config{BaseURL: s.URL, Table: llm.BuiltinTable()})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range []struct {
		name string
		read streamReader
	}{
		{"by=hand", readByHand(s.URL)}, {"by=adapter", readWithAdapter(m)},
	} {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			var waits []time.Duration
			for b.Loop() {
				start := time.Now()
				first, texts, err := r.read(b.Context())
				if err != nil || texts != deltaCount {
					b.Fatalf("%d deltas: %v", texts, err)
				}
				waits = append(waits, first.Sub(start))
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "µs-to-first")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/deltaCount, "ns/delta")
		})
	}
}

func readWithAdapter(m llm.Model) streamReader {
	req := llm.Request{System: "Be kind.", Messages: []conversation.Message{conversation.User("hello")}}
	return func(ctx context.Context) (first time.Time, texts int, err error) {
		for d, err := range m.Generate(ctx, req) {
			if err != nil {
				return first, texts, err
			}
			if d.Text == "" {
				continue
			}
			if texts++; texts == 1 {
				first = time.Now()
			}
		}
		return first, texts, nil
	}
}

func readByHand(url string) streamReader {
	client := &http.Client{}
	const body = `{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"hello"}]}`
	return func(ctx context.Context) (first time.Time, texts int, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", strings.NewReader(body))
		if err != nil {
			return first, 0, err
		}
		res, err := client.Do(req)
		if err != nil {
			return first, 0, err
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			if !ok || string(data) == "[DONE]" {
				continue
			}
			var c struct {
				Choices []struct {
					Delta struct {
						Content string `json:"content"`
					} `json:"delta"`
				} `json:"choices"`
			}
			if err := json.Unmarshal(data, &c); err != nil {
				return first, texts, fmt.Errorf("%s: %w", data, err)
			}
			if len(c.Choices) == 0 || c.Choices[0].Delta.Content == "" {
				continue
			}
			if texts++; texts == 1 {
				first = time.Now()
			}
		}
		return first, texts, lines.Err()
	}
}
