package console

const (
	Bold = "\x1b[1m"
	Dim  = "\x1b[2m"
	Red  = "\x1b[31m"
)

// Paint is text in a style, where there are styles.
func (t Terminal) Paint(style, text string) string {
	if !t.Color || style == "" || text == "" {
		return text
	}
	return style + text + "\x1b[0m"
}
