package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// Result holds a check with its duration and the reason why it failed.
type Result struct {
	Check
	// Duration is how long the check took.
	Duration time.Duration
	// Reason says in one line what the check expected and what it observed (empty if the check passed).
	Reason string
	// FirstReason says why the check failed before it was repeated (empty if it was not).
	FirstReason string
}

// Passed reports whether the worker passed the check.
func (r Result) Passed() bool { return r.Reason == "" }

// Report holds the results of a run.
type Report struct {
	// Address is the address of the worker under test.
	Address string
	// Duration is how long the run took.
	Duration time.Duration
	// Results are the results of the selected checks, grouped by area.
	Results []Result
}

// FailedCount returns the number of failed checks.
func (r Report) FailedCount() int {
	n := 0
	for _, result := range r.Results {
		if !result.Passed() {
			n++
		}
	}
	return n
}

// WriteTable writes the report as a table for people, with terminal colors if color is set.
func (r Report) WriteTable(w io.Writer, color bool) error {
	paint := func(style, text string) string {
		if !color {
			return text
		}
		return "\x1b[" + style + "m" + text + "\x1b[0m"
	}
	const bold, dim, red, green = "1", "2", "31", "32"
	idWidth, requirementWidth := 0, 0
	for _, c := range r.Results {
		idWidth, requirementWidth = max(idWidth, len(c.ID)), max(requirementWidth, len(c.Requirement))
	}
	out := &lineWriter{w: w}
	area := ""
	for _, c := range r.Results {
		if c.Area() != area {
			area = c.Area()
			out.addf("\n%s\n", paint(bold, area))
		}
		mark := paint(green, "✓")
		if !c.Passed() {
			mark = paint(red, "✗")
		}
		out.addf("  %s %-*s  %-*s  %6s\n", mark, idWidth, c.ID, requirementWidth, c.Requirement, shorten(c.Duration))
		if !c.Passed() {
			out.addf("      %s\n      %s\n", c.Title, paint(red, c.Reason))
		} else if c.FirstReason != "" {
			out.addf("      %s\n", paint(dim, "passed when it was repeated alone; before: "+c.FirstReason))
		}
	}
	verdict := paint(green, fmt.Sprintf("All %d checks passed", len(r.Results)))
	if failed := r.FailedCount(); failed > 0 {
		verdict = paint(red, fmt.Sprintf("%d of %d checks failed", failed, len(r.Results)))
	}
	out.addf("\n%s in %s at %s.\n", verdict, shorten(r.Duration), r.Address)
	return out.err
}

// lineWriter formats lines and keeps the first write error, after which it writes nothing.
type lineWriter struct {
	w   io.Writer
	err error
}

func (l *lineWriter) addf(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, format, args...)
	}
}

func shorten(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// WriteJSON writes the report as JSON.
func (r Report) WriteJSON(w io.Writer) error {
	type check struct {
		ID          string  `json:"id"`
		Area        string  `json:"area"`
		Requirement string  `json:"requirement"`
		Title       string  `json:"title"`
		Passed      bool    `json:"passed"`
		Seconds     float64 `json:"seconds"`
		Reason      string  `json:"reason,omitempty"`
		FirstReason string  `json:"first_reason,omitempty"`
	}
	document := struct {
		Address string  `json:"address"`
		Passed  int     `json:"passed"`
		Failed  int     `json:"failed"`
		Seconds float64 `json:"seconds"`
		Checks  []check `json:"checks"`
	}{Address: r.Address, Passed: len(r.Results) - r.FailedCount(), Failed: r.FailedCount(), Seconds: r.Duration.Seconds()}
	for _, c := range r.Results {
		document.Checks = append(document.Checks, check{c.ID, c.Area(), c.Requirement, c.Title, c.Passed(), c.Duration.Seconds(), c.Reason, c.FirstReason})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Name    string       `xml:"name,attr"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Seconds  float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Area    string        `xml:"classname,attr"`
	ID      string        `xml:"name,attr"`
	Seconds float64       `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML for CI systems, with one suite for each area.
func (r Report) WriteJUnit(w io.Writer) error {
	document := junitSuites{Name: "troupe conformance"}
	for _, c := range r.Results {
		if n := len(document.Suites); n == 0 || document.Suites[n-1].Name != c.Area() {
			document.Suites = append(document.Suites, junitSuite{Name: c.Area()})
		}
		suite := &document.Suites[len(document.Suites)-1]
		found := junitCase{Area: c.Area(), ID: c.ID, Seconds: c.Duration.Seconds()}
		if !c.Passed() {
			found.Failure = &junitFailure{Message: c.Reason, Text: c.Title + " (" + c.Requirement + ")"}
			suite.Failures++
		}
		suite.Tests++
		suite.Seconds += c.Duration.Seconds()
		suite.Cases = append(suite.Cases, found)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
