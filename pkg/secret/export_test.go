package secret

// Bytes are where a test sees what becomes of the text.
func Bytes(v Value) []byte { return (*v.at).text }
