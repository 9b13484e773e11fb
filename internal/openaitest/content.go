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

// textAndFiles returns the text and the files of the content.
func (c content) textAndFiles() (text string, files []conversation.Attachment, err error) {
	if len(c) == 0 || string(c) == "null" {
		return "", nil, nil
	}
	if c[0] == '"' {
		return text, nil, json.Unmarshal(c, &text)
	}
	var parts []struct {
		Type, Text string
		ImageURL   struct{ URL string } `json:"image_url"`
		File       struct {
			Filename string
			FileData string `json:"file_data"`
		}
	}
	if err := json.Unmarshal(c, &parts); err != nil {
		return "", nil, err
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
			text += p.Text
		case "image_url", "file":
			url := p.ImageURL.URL + p.File.FileData
			mediaType, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
			if !ok {
				return "", nil, fmt.Errorf("%q is no data URL", url)
			}
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return "", nil, err
			}
			files = append(files, conversation.Attachment{Name: p.File.Filename, MediaType: mediaType, Data: raw})
		default:
			return "", nil, fmt.Errorf("the API knows no part of type %q", p.Type)
		}
	}
	return text, files, nil
}
