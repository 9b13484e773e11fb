package artifacts

import "testing"

// The state of a digest can be read whatever it contains.
func FuzzResumeDigest(f *testing.F) {
	for _, text := range []string{"", "1", "sha\x03", "1700000 fuz"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = resumeDigest(text) })
}
