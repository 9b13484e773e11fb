package openai

import (
	"encoding/base64"

	sdk "github.com/openai/openai-go/v3"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// user is a message of the user's side: a text, or parts when files come with it.
func (m *model) user(said conversation.Message) sdk.ChatCompletionMessageParamUnion {
	text, files := llm.Shown(said, m.takes)
	if len(files) == 0 {
		return sdk.UserMessage(text)
	}
	var parts []sdk.ChatCompletionContentPartUnionParam
	for _, f := range files {
		url := "data:" + llm.MediaType(f) + ";base64," + base64.StdEncoding.EncodeToString(f.Data)
		if llm.MediaType(f) == llm.PDF {
			parts = append(parts, sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{FileData: sdk.String(url), Filename: sdk.String(f.Name)}))
			continue
		}
		parts = append(parts, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: url}))
	}
	if text != "" {
		parts = append(parts, sdk.TextContentPart(text))
	}
	return sdk.UserMessage(parts)
}

// takes reports whether the provider has a form for a media type. Pictures have one on all
// servers, documents on few.
func (m *model) takes(mediaType string) bool {
	provider := m.source.Provider
	return llm.IsImage(mediaType) || mediaType == llm.PDF && (provider == Prefix || provider == "openrouter")
}
