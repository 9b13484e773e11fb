package journal

import "testing"

// Decoding an invalid journal entry returns an error and does not panic.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{"", "1", "1700000 fuz", "\x08\x01\x12\x02hi"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = decodeEntry(text)
		_, _ = decodeHashEntries(map[string]string{"1:r": text, text: "", "2:" + text: text})
	})
}
