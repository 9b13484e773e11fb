package openaitest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// content is the content of a message: a text or a list of parts.
type content json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(b []byte) error {
	*c = append((*c)[:0], b...)
	return nil
}

// contentPart is one part of a content that is a list.
type contentPart struct {
	Type, Text string
	Thinking   []struct{ Text string }
	ImageURL   struct{ URL string } `json:"image_url"`
	File       struct {
		Filename string
		FileData string `json:"file_data"`
	}
}

// decode returns the message with the text and the files of the content, and the thought in it.
func (c content) decode() (said conversation.Message, thought string, err error) {
	if len(c) == 0 || string(c) == "null" {
		return said, "", nil
	}
	if c[0] == '"' {
		err := json.Unmarshal(c, &said.Text)
		if rest, ok := strings.CutPrefix(said.Text, "<think>"); ok {
			thought, said.Text, _ = strings.Cut(rest, "</think>\n\n")
		}
		return said, thought, err
	}
	var parts []contentPart
	if err := json.Unmarshal(c, &parts); err != nil {
		return said, "", err
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
			said.Text += p.Text
		case "thinking":
			for _, t := range p.Thinking {
				thought += t.Text
			}
		case "image_url", "file":
			file, err := p.attachment()
			if err != nil {
				return said, "", err
			}
			said.Attachments = append(said.Attachments, file)
		default:
			return said, "", fmt.Errorf("the API knows no part of type %q", p.Type)
		}
	}
	return said, thought, nil
}

// attachment returns the file in the part.
func (p contentPart) attachment() (conversation.Attachment, error) {
	url := p.ImageURL.URL + p.File.FileData
	mediaType, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	if !ok {
		return conversation.Attachment{}, fmt.Errorf("%q is no data URL", url)
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	return conversation.Attachment{Name: p.File.Filename, MediaType: mediaType, Data: raw}, err
}
