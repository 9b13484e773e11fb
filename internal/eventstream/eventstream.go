// Package eventstream brings streams of server-sent events into the one form that the SDKs of all model providers read.
package eventstream

import "io"

// Reader reads server-sent events in one form:
//
//   - Lines end with a line feed. The format also allows a carriage return with or without a line feed.
//   - There are no comments, and no empty lines between events.
//   - Characters are whole. A character outside of the basic plane is written as two JSON escapes, and some servers
//     send the two halves at the end of one event's text and at the beginning of the next one's. Each half alone
//     would decode to a replacement character.
type Reader struct {
	io.ReadCloser
	buffer  [4 << 10]byte
	out     []byte // bytes for the reader
	read    int    // how many of them were read
	err     error  // why the stream ended (nil while it is open)
	scratch []byte // escape of JSON that may still be the half of a split character

	isLineStart bool
	isComment   bool // the line is a comment
	isEvent     bool // an event has begun, which the next empty line ends
	afterCR     bool // a line feed belongs to the line end before it

	afterQuote bool   // a JSON string may begin here
	firstHalf  []byte // escape of the first half of a character, whose second half has not arrived
	isJoined   bool   // the line contains the second half
}

// New returns a Reader of a response body. Closing it closes the body.
func New(body io.ReadCloser) *Reader { return &Reader{ReadCloser: body, isLineStart: true} }

// Read implements io.Reader.
func (s *Reader) Read(p []byte) (int, error) {
	for s.read == len(s.out) && s.err == nil {
		s.out, s.read = s.out[:0], 0
		n, err := s.ReadCloser.Read(s.buffer[:])
		for _, b := range s.buffer[:n] {
			s.addByte(b)
		}
		if s.err = err; err != nil {
			s.out, s.scratch = append(s.out, s.scratch...), nil
		}
	}
	n := copy(p, s.out[s.read:])
	s.read += n
	if n == 0 && len(p) > 0 {
		return 0, s.err
	}
	return n, nil
}

// addByte processes the next byte of the stream.
func (s *Reader) addByte(b byte) {
	isPartOfCRLF := b == '\n' && s.afterCR
	s.afterCR = b == '\r'
	switch {
	case isPartOfCRLF:
	case b == '\r', b == '\n':
		s.endLine()
	case s.isComment:
	case s.isLineStart && b == ':':
		s.isLineStart, s.isComment = false, true
	default:
		s.isLineStart, s.isEvent = false, true
		s.addText(b)
	}
}

func (s *Reader) endLine() {
	s.out, s.scratch = append(s.out, s.scratch...), s.scratch[:0]
	if s.isJoined {
		s.firstHalf, s.isJoined = nil, false
	}
	if !s.isComment && (!s.isLineStart || s.isEvent) {
		s.out = append(s.out, '\n')
		s.isEvent = !s.isLineStart
	}
	s.isLineStart, s.isComment, s.afterQuote = true, false, false
}

// escapeLength is the length of an escape such as \ud83d.
const escapeLength = 6

// addText processes the next byte of a line that is no comment.
func (s *Reader) addText(b byte) {
	switch n := len(s.scratch); {
	case n == 0 && b != '\\':
		s.out = append(s.out, b)
		s.afterQuote = b == '"'
		return
	case n == escapeLength: // the escape of a first half
		half := s.scratch
		s.scratch = s.scratch[:0]
		if b == '"' { // the string ends within a character
			s.firstHalf = append([]byte(nil), half...)
		} else {
			s.out = append(s.out, half...)
		}
		s.afterQuote = false
		s.addText(b)
		return
	default:
		s.scratch = append(s.scratch, b)
	}
	if len(s.scratch) == 1 || len(s.scratch) < escapeLength && s.scratch[1] == 'u' {
		return // the escape is incomplete
	}
	switch half := surrogateHalf(s.scratch); {
	case half == 1:
		return // it depends on the next byte whether the character is split
	case half == 2 && s.afterQuote && len(s.firstHalf) > 0:
		s.out, s.isJoined = append(s.out, s.firstHalf...), true
	}
	s.out, s.scratch = append(s.out, s.scratch...), s.scratch[:0]
	s.afterQuote = false
}

// surrogateHalf returns which half of a character an escape stands for: 1 or 2 (0 for neither).
func surrogateHalf(escape []byte) int {
	if len(escape) != escapeLength || escape[2]|0x20 != 'd' {
		return 0
	}
	switch escape[3] | 0x20 { // the lower-case letter; digits stay as they are
	case '8', '9', 'a', 'b':
		return 1
	case 'c', 'd', 'e', 'f':
		return 2
	}
	return 0
}
