package console

// Styles for Paint.
const (
	Bold = "\x1b[1m"
	Dim  = "\x1b[2m"
	Red  = "\x1b[31m"
)

// ApplyStyle returns the text in the given style. It returns the text unchanged if the terminal does not support
// styles.
func (t Terminal) ApplyStyle(style, text string) string {
	if !t.Color || style == "" || text == "" {
		return text
	}
	return style + text + "\x1b[0m"
}
