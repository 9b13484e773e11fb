package db

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// defaultSettings is how the default settings are stored once a caller has set them. update.lua knows it too, so
// that setting the default of a new session changes nothing.
const defaultSettings = "-"

// EncodeSettings encodes the settings of a session for its meta hash. The result is never empty.
func EncodeSettings(s session.Settings) (string, error) {
	if s == (session.Settings{}) {
		return defaultSettings, nil
	}
	encoded, err := Encoding.Marshal(memorywire.SettingsToProto(s))
	return string(encoded), err
}

// DecodeSettings is the inverse of EncodeSettings. An empty text stands for the default.
func DecodeSettings(stored string) (session.Settings, error) {
	if stored == "" || stored == defaultSettings {
		return session.Settings{}, nil
	}
	var s troupev1.SessionSettings
	if err := proto.Unmarshal([]byte(stored), &s); err != nil {
		return session.Settings{}, fmt.Errorf("settings of the session: %w", err)
	}
	return memorywire.SettingsFromProto(&s), nil
}
