package operate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/failure"
)

type auditCommands struct {
	Verify verifyAuditCommand `cmd:"" help:"Check that nothing in an audit log was changed, removed, added or moved."`
	Show   showAuditCommand   `cmd:"" help:"Show the entries of an audit log, checking it."`
}

type verifyAuditCommand struct {
	Files []string `arg:"" help:"The files of one log, in any order: FILE, FILE.000001 and so on." type:"existingfile"`
	Head  string   `help:"Hash of 64 digits that the process logged. It reveals missing lines at the end of the log." placeholder:"HASH"`
}

// Help implements kong.HelpProvider.
func (verifyAuditCommand) Help() string {
	return "Exit code 0: every line is as it was written. 1: the first place that is not is named. A process logs the head of " +
		"its log when it starts, every 10 minutes and when it stops; keep those elsewhere, and give the last to --head."
}

// Run checks the files.
func (v *verifyAuditCommand) Run(term console.Terminal) error {
	if v.Head != "" {
		if err := audit.CheckHash(v.Head); err != nil {
			return failure.Newf(failure.UserInvalidInput, "troupe audit verify", "--head: %v; give the whole head, as the process logged it", err)
		}
	}
	report, err := audit.Verify(v.Files, v.Head, nil)
	if report.Lines > 0 {
		fmt.Fprintf(term.Out, "%d lines, number %d to %d, from %s to %s\nhead  %s\n", report.Lines, report.First, report.Last,
			report.From.Format(time.RFC3339), report.To.Format(time.RFC3339), report.Head)
		printNotes(term, report)
	}
	broken, ok := errors.AsType[*audit.BrokenError](err)
	switch {
	case ok:
		fmt.Fprintf(term.Out, "BROKEN  %s\n", console.Escape(broken.Error()))
		return console.ExitCode(process.ExitError)
	case err != nil:
		return err
	case v.Head == "":
		fmt.Fprintln(term.Out, "whole, up to this head; with --head it would show whether lines are missing at the end")
	default:
		fmt.Fprintln(term.Out, "whole, and the head that you know is in it")
	}
	return nil
}

// printNotes prints findings about a log whose hash chain is intact, such as a missing beginning.
func printNotes(term console.Terminal, r audit.Report) {
	if r.First > 1 {
		fmt.Fprintf(term.Out, "note  it begins with number %d: the files before were not given\n", r.First)
	}
	if r.LostEntries > 0 {
		fmt.Fprintf(term.Out, "note  %d entries are not in it: the disk failed, or did not keep up; it says where\n", r.LostEntries)
	}
	if r.TornPlaces > 0 {
		fmt.Fprintf(term.Out, "note  at %d places a crash or a full disk left a part of a line; it says so itself\n", r.TornPlaces)
	}
}

type showAuditCommand struct {
	Files []string      `arg:"" help:"The files of one log, in any order." type:"existingfile"`
	Kind  string        `help:"Only entries of one kind: ${enum}." enum:"any,denied,violation,admin,lifecycle,takeover,credential,log" default:"any"`
	Actor string        `help:"Only entries whose actor contains this text." placeholder:"TEXT"`
	On    string        `help:"Only entries whose object or facts contain this text." placeholder:"TEXT"`
	Since time.Duration `help:"Only entries of the last such time, for example 24h (0 means all)."`
}

// Run prints the entries.
func (s *showAuditCommand) Run(term console.Terminal) error {
	w := tabwriter.NewWriter(term.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tAT\tKIND\tACTOR\tACTION\tOBJECT\tRESULT\tFACTS")
	_, err := audit.Verify(s.Files, "", func(_ string, _ int, r audit.RecordedEntry) {
		if s.matches(r) {
			console.PrintRow(w, r.Time.Format(time.RFC3339), console.OrDash(r.Component), r.Kind, console.OrDash(r.Actor),
				r.Action, console.OrDash(r.Object), console.OrDash(r.Result), factsText(r.Facts))
		}
	})
	return errors.Join(w.Flush(), err)
}

func (s *showAuditCommand) matches(r audit.RecordedEntry) bool {
	return (s.Kind == "any" || string(r.Kind) == s.Kind) && strings.Contains(r.Actor, s.Actor) &&
		strings.Contains(r.Object+" "+factsText(r.Facts), s.On) && (s.Since == 0 || time.Since(r.Time) <= s.Since)
}

func factsText(all map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, key+"="+all[key])
	}
	return strings.Join(out, " ")
}
