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
