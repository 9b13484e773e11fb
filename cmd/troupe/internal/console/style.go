package console

// Styles for Paint.
const (
	Bold = "\x1b[1m"
	Dim  = "\x1b[2m"
	Red  = "\x1b[31m"
)

// Paint returns text in a style, if the terminal understands styles.
func (t Terminal) Paint(style, text string) string {
	if !t.Color || style == "" || text == "" {
		return text
	}
	return style + text + "\x1b[0m"
}
