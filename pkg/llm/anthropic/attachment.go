package anthropic

import (
	"encoding/base64"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// userBlocks returns the blocks of a user message. Files come first, because the model answers a question about a
// file better if it has read the file before.
func userBlocks(m conversation.Message) []sdk.ContentBlockParamUnion {
	said, files := llm.SplitAttachments(m, acceptsAttachment)
	var blocks []sdk.ContentBlockParamUnion
	for _, f := range files {
		blocks = append(blocks, fileBlock(f))
	}
	return append(blocks, textBlocks(said)...)
}

// toolResultBlock returns the block of a tool result with its files, even if the result is empty.
func toolResultBlock(m conversation.Message) *sdk.ToolResultBlockParam {
	said, files := llm.SplitAttachments(m, acceptsAttachment)
	r := &sdk.ToolResultBlockParam{ToolUseID: sanitizeID(m.ToolCallID)}
	if strings.TrimSpace(said) != "" {
		r.Content = append(r.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: said}})
	}
	for _, f := range files {
		block := fileBlock(f)
		r.Content = append(r.Content, sdk.ToolResultBlockParamContentUnion{OfImage: block.OfImage, OfDocument: block.OfDocument})
	}
	return r
}

func fileBlock(f conversation.Attachment) sdk.ContentBlockParamUnion {
	data := base64.StdEncoding.EncodeToString(f.Data)
	if llm.MediaType(f) != llm.PDF {
		return sdk.NewImageBlockBase64(llm.MediaType(f), data)
	}
	document := sdk.NewDocumentBlock(sdk.Base64PDFSourceParam{Data: data})
	document.OfDocument.Title = sdk.String(f.Name)
	return document
}

func acceptsAttachment(mediaType string) bool { return llm.IsImage(mediaType) || mediaType == llm.PDF }
