package anthropic

import (
	"encoding/base64"

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
		data := base64.StdEncoding.EncodeToString(f.Data)
		if llm.MediaType(f) == llm.PDF {
			document := sdk.NewDocumentBlock(sdk.Base64PDFSourceParam{Data: data})
			document.OfDocument.Title = sdk.String(f.Name)
			blocks = append(blocks, document)
			continue
		}
		blocks = append(blocks, sdk.NewImageBlockBase64(llm.MediaType(f), data))
	}
	return append(blocks, textBlocks(said)...)
}

func acceptsAttachment(mediaType string) bool { return llm.IsImage(mediaType) || mediaType == llm.PDF }
