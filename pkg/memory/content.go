package memory

import (
	"crypto/sha256"
	"encoding/hex"
)

// ContentOf returns the digest and size of the bytes.
func ContentOf(data []byte) Content {
	sum := sha256.Sum256(data)
	return Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
}
