package openai

import "strings"

// thinkSplitter separates the thoughts of a model from its answer. It is for servers that send both as one text,
// with the thoughts between <think> and </think>. Only a tag at the very beginning counts, because a later tag may
// be part of the answer.
type thinkSplitter struct {
	state thinkState
	held  string // text that may be the beginning of a tag
}

type thinkState int

const (
	beforeThink thinkState = iota // only white space has arrived
	inThink
	afterThink // white space before the answer is dropped
	inAnswer
)

const (
	thinkStart = "<think>"
	thinkEnd   = "</think>"
)

// add processes the next text, and returns its part of the thoughts and its part of the answer.
func (s *thinkSplitter) add(text string) (thought, answer string) {
	text = s.held + text
	s.held = ""
	if s.state == beforeThink {
		begin := strings.TrimLeft(text, " \t\r\n")
		switch {
		case strings.HasPrefix(begin, thinkStart):
			s.state, text = inThink, begin[len(thinkStart):]
		case strings.HasPrefix(thinkStart, begin): // also true if only white space has arrived
			s.held = text
			return "", ""
		default:
			s.state = inAnswer
		}
	}
	if s.state == inThink {
		before, after, ended := strings.Cut(text, thinkEnd)
		if !ended {
			thought, s.held = cutTagStart(text)
			return thought, ""
		}
		s.state, thought, text = afterThink, before, after
	}
	if s.state == afterThink {
		if text = strings.TrimLeft(text, " \t\r\n"); text != "" {
			s.state = inAnswer
		}
	}
	return thought, text
}

// flush returns the text that add has held back because it might have been the beginning of a tag.
func (s *thinkSplitter) flush() (thought, answer string) {
	if s.state == inThink {
		return s.held, ""
	}
	return "", s.held
}

// cutTagStart splits a text before an ending that may be the beginning of the closing tag.
func cutTagStart(text string) (before, held string) {
	for n := min(len(thinkEnd)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, thinkEnd[:n]) {
			return text[:len(text)-n], text[len(text)-n:]
		}
	}
	return text, ""
}
