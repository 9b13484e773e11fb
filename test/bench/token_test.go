package bench

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/test/rig"
)

// BenchmarkFirstToken compares two times to the first text: calling a model directly over HTTP, and calling it
// through the mesh. The mesh is measured from the client's Orchestrate call to its first text_delta. Each turn
// is the first of its session. The overhead of the mesh is the difference of the medians. One model answers at
// once, which shows the whole overhead. The other waits 20 ms, which shows what the mesh cannot do while the
// model works.
func BenchmarkFirstToken(b *testing.B) {
	p := &fakeProvider{}
	server := llmtest.NewServer(b, openaitest.Wire{}, p.answer)
	model, err := openai.New("openai/test-large", openai.Config{BaseURL: server.URL})
	require.NoError(b, err)
	m := rig.StartInProcess(b, rig.Config{})
	m.HostWorker("talker", rig.Program{Instance: "talker-1", DrainTimeout: time.Second, NewAgent: func() (*agent.Agent, error) {
		return agent.New(agent.Config{Name: "talker", Model: model, Instructions: "Be kind."})
	}})
	m.Await("the talker is ready", func() bool {
		all, err := m.ListAgents(b.Context(), &troupev1.ListAgentsRequest{})
		return err == nil && slices.ContainsFunc(all.GetAgents(), func(a *troupev1.Agent) bool { return a.GetName() == "talker" && a.GetReady() > 0 })
	})
	for _, thinks := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run("model="+thinks.String(), func(b *testing.B) {
			p.delay = thinks
			var direct, meshed, asked []time.Duration
			for b.Loop() {
				direct = append(direct, timeToModelText(b, model))
				start := time.Now()
				meshed = append(meshed, timeToMeshText(b, m))
				asked = append(asked, time.Unix(0, p.lastRequest.Load()).Sub(start))
			}
			alone, through := median(direct), median(meshed)
			b.ReportMetric(alone, "direct-p50-ms")
			b.ReportMetric(through, "mesh-p50-ms")
			b.ReportMetric(through-alone, "added-p50-ms")
			b.ReportMetric(median(asked), "asked-p50-ms")
		})
	}
}

// fakeProvider is a model server that always sends the same answer, after a delay.
type fakeProvider struct {
	delay       time.Duration // does not change while requests run
	lastRequest atomic.Int64  // time of the last request, in Unix nanoseconds
}

func (p *fakeProvider) answer(llmtest.DecodedRequest) llmtest.Reply {
	p.lastRequest.Store(time.Now().UnixNano())
	timer := time.NewTimer(p.delay)
	defer timer.Stop()
	<-timer.C
	return llmtest.Reply{Texts: []string{"Hello ", "to ", "you."}}
}

const greeting = "Hello?"

// timeToModelText measures the time to the first word of the model.
func timeToModelText(b *testing.B, model llm.Model) (first time.Duration) {
	start := time.Now()
	for d, err := range model.Generate(b.Context(), llm.Request{System: "Be kind.", Messages: []conversation.Message{conversation.User(greeting)}}) {
		require.NoError(b, err)
		if d.Text != "" && first == 0 {
			first = time.Since(start)
		}
	}
	require.NotZero(b, first)
	return first
}

// timeToMeshText measures the time until a client of the mesh receives the first word. It then reads the turn to
// its end.
func timeToMeshText(b *testing.B, m *rig.Mesh) (first time.Duration) {
	req := &troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: greeting}, Target: "talker", SessionId: uuid.NewString(), RequestId: uuid.NewString(),
	}
	start := time.Now()
	for e, err := range m.Turn(b.Context(), req) {
		require.NoError(b, err)
		if e.GetTextDelta() != nil && first == 0 {
			first = time.Since(start)
		}
	}
	require.NotZero(b, first)
	return first
}

// median returns the median of the durations in milliseconds.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}
