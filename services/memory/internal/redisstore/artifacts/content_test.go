package artifacts

import "testing"

// resumeDigest returns an error for invalid input, and does not panic.
func FuzzResumeDigest(f *testing.F) {
	for _, text := range []string{"", "1", "sha\x03", "1700000 fuz"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = resumeDigest(text) })
}
