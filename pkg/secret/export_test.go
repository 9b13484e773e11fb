package secret

// Bytes returns the memory that holds the text, so that a test can inspect it.
func Bytes(v Value) []byte { return (*v.content).text }
