package secret

// Bytes lets a test inspect the memory of the text.
func Bytes(v Value) []byte { return (*v.at).text }
