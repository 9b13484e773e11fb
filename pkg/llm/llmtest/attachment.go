package llmtest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// testAttachments checks how files are sent: images and documents in the provider's format, text files as text,
// and for others a note that they exist.
func testAttachments(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	earlier := conversation.User("look")
	earlier.Attachments = []conversation.Attachment{{Name: "old.png", MediaType: "image/png", Size: 3 << 19, Version: 1}}
	now := conversation.User("compare these")
	now.Attachments = []conversation.Attachment{
		{Name: "chart.png", MediaType: "image/png", Size: 5, Data: []byte("\x89PNG\r")},
		{Name: "report.pdf", MediaType: "Application/PDF", Size: 5, Data: []byte("%PDF-")},
		{Name: "photo.jpg", MediaType: "image/jpeg; quality=1", Size: 3, Data: []byte("\xff\xd8\xff")},
		{Name: "notes.txt", MediaType: "text/plain; charset=utf-8", Size: 18, Data: []byte("remember the milk\n")},
		{Name: "data.json", MediaType: "application/json", Size: 7, Data: []byte(`{"a":1}`)},
		{Name: "data.zip", MediaType: "application/zip", Size: 3000, Data: []byte("PK\x03\x04")},
		{Name: "broken.txt", MediaType: "text/plain", Size: 2, Data: []byte("\xff\xfe")},
	}
	silent := conversation.Message{Role: conversation.RoleUser, Attachments: now.Attachments[:1]}
	said := rig.ask(rig.Context(), m, llm.Request{Messages: []conversation.Message{earlier, now, conversation.Assistant("a", "hm"), silent}}, nil)
	require.NoError(rig, said.Err)
	asked, _ := rig.requests()
	var text []string
	var shown []string
	for _, m := range asked[0].Messages {
		text = append(text, m.Text)
		for _, a := range m.Attachments {
			require.Equal(rig, conversation.RoleUser, m.Role)
			shown = append(shown, a.MediaType+" "+string(a.Data))
		}
	}
	require.Equal(rig, []string{
		"image/png \x89PNG\r", "application/pdf %PDF-", "image/jpeg \xff\xd8\xff", "image/png \x89PNG\r",
	}, shown)
	all := strings.Join(text, "\n")
	for _, part := range []string{
		"look\n\n[attachment old.png, image/png, 1.5 MiB: not shown to this model]",
		"compare these\n\n[attachment notes.txt, text/plain; charset=utf-8, 18 B]\nremember the milk\n[end of notes.txt]",
		"{\"a\":1}\n[end of data.json]",
		"[attachment data.zip, application/zip, 3 KiB: not shown to this model]",
		"[attachment broken.txt, text/plain, 2 B: not shown to this model]",
	} {
		require.Contains(rig, all, part)
	}
	require.NotContains(rig, all, "chart.png")
}

// testResultFiles checks how the files of tool results are sent: with the result, or in messages of the user after the
// last result of the round, because a provider may accept only text in a result (CO-74).
func testResultFiles(rig *testbed) {
	m := rig.open(llm.Timeouts{}, respond(Reply{Texts: []string{"hi"}}))
	messages := []conversation.Message{
		conversation.User("compare"),
		{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{
			{ID: "call_a", Name: "look", Arguments: `{"at":1}`}, {ID: "call_b", Name: "look", Arguments: `{"at":2}`},
		}},
		{Role: conversation.RoleTool, ToolCallID: "call_a", Text: "the first", Attachments: []conversation.Attachment{
			{Name: "a.png", MediaType: "image/png", Size: 5, Data: []byte("\x89PNG\r")},
			{Name: "notes.txt", MediaType: "text/plain", Size: 5, Data: []byte("milk\n")},
			{Name: "sound.wav", MediaType: "audio/wav", Size: 3000, Data: []byte("RIFF")},
		}},
		{Role: conversation.RoleTool, ToolCallID: "call_b", Text: "the second", Attachments: []conversation.Attachment{
			{Name: "b.jpg", MediaType: "image/jpeg", Size: 3, Data: []byte("\xff\xd8\xff")},
			{Name: "c.pdf", MediaType: "application/pdf", Size: 5, Data: []byte("%PDF-")},
			{Name: "gone.png", MediaType: "image/png", Size: 3 << 10, Version: 1},
		}},
		conversation.Assistant("a", "hm"), conversation.User("and?"),
	}
	req := llm.Request{Messages: messages, Tools: []llm.ToolSpec{{Name: "look"}}}
	require.NoError(rig, rig.ask(rig.Context(), m, req, nil).Err)
	asked, bodies := rig.requests()
	var results, files []string
	assistants := 0
	for _, m := range asked[0].Messages {
		if m.Role == conversation.RoleAssistant {
			assistants++
		}
		if m.Role == conversation.RoleTool {
			require.Empty(rig, files[:max(0, len(files)-1)], "all results come before other messages")
			results = append(results, m.Text)
		}
		for _, a := range m.Attachments {
			require.Equal(rig, 1, assistants, "the files stand between the calls and the answer")
			files = append(files, a.MediaType+" "+string(a.Data))
		}
	}
	require.Equal(rig, []string{
		"the first\n\n[attachment notes.txt, text/plain, 5 B]\nmilk\n[end of notes.txt]\n\n[attachment sound.wav, audio/wav, 3 KiB: not shown to this model]",
		"the second\n\n[attachment gone.png, image/png, 3 KiB: not shown to this model]",
	}, results, "%s", bodies[0])
	require.Equal(rig, []string{"image/png \x89PNG\r", "image/jpeg \xff\xd8\xff", "application/pdf %PDF-"}, files)
}
