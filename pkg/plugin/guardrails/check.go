package guardrails

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/sidecall"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Check decides whether a text must be blocked. The functions of this package create checks, and New reports
// invalid ones.
type Check struct {
	name      string
	trips     func(ctx context.Context, t *hook.Turn, text string) (bool, error)
	usesModel bool   // the check asks the model
	problem   string // why the check is invalid (empty if it is valid)
}

// Func returns a check that calls trips, which reports whether the text must be blocked. If trips fails or panics,
// the text is blocked. The name of the check appears in warnings and errors. A check of the input may also get
// older messages of the session, so it should be cheap.
func Func(name string, trips func(ctx context.Context, t *hook.Turn, text string) (bool, error)) Check {
	c := Check{name: name, trips: trips}
	switch {
	case strings.TrimSpace(name) == "":
		c.problem = "a check needs a name"
	case trips == nil:
		c.problem = fmt.Sprintf("check %q has no function", name)
	}
	return c
}

// MaxLength returns a check that trips on texts with more than the given number of characters.
func MaxLength(characters int) Check {
	c := Func("maxLength", func(_ context.Context, _ *hook.Turn, text string) (bool, error) {
		return utf8.RuneCountInString(text) > characters, nil
	})
	if characters < 1 {
		c.problem = fmt.Sprintf("maxLength is %d; use 1 or more characters", characters)
	}
	return c
}

// Forbid returns a check that trips on texts that match one of the patterns. The patterns are regular expressions
// of Go (RE2), whose running time is linear in the length of the text. A leading (?i) ignores case.
func Forbid(patterns ...string) Check {
	var all []*regexp.Regexp
	c := Func("forbid", func(_ context.Context, _ *hook.Turn, text string) (bool, error) {
		for _, p := range all {
			if p.MatchString(text) {
				return true, nil
			}
		}
		return false, nil
	})
	for i, p := range patterns {
		compiled, err := regexp.Compile(p)
		if err != nil || p == "" {
			c.problem = fmt.Sprintf("forbid[%d] is %q, which is no regular expression of Go (RE2), or empty", i, p)
			return c
		}
		all = append(all, compiled)
	}
	if len(all) == 0 {
		c.problem = "forbid has no pattern"
	}
	return c
}

// maxJudgedBytes is the length of the longest text that a model judges. A longer text trips.
const maxJudgedBytes = 16 << 10

const judgeInstruction = `You decide whether an assistant may deal with a text. It may deal with these subjects only:

- %s

Greetings, thanks and questions about the assistant itself are allowed as well. When in doubt, it may not.
Answer with exactly {"allowed": true} or {"allowed": false}, and not a character more.`

// verdictForm matches the required answer. It is stricter than encoding/json, which accepts duplicate names and
// uses the last one.
var verdictForm = regexp.MustCompile(`^\s*\{\s*"allowed"\s*:\s*(true|false)\s*\}\s*$`)

var errNoJudgement = errors.New("the model's answer is no judgement")

// Topics returns a check that trips on texts about anything except the given subjects. Each subject is a few
// words. The agent's model decides, with one extra call for each text. An unclear answer trips.
func Topics(subjects ...string) Check {
	instruction := fmt.Sprintf(judgeInstruction, strings.Join(subjects, "\n- "))
	c := Func("topics", func(ctx context.Context, t *hook.Turn, text string) (bool, error) {
		if len(text) > maxJudgedBytes {
			return true, nil
		}
		answer, err := sidecall.Ask(ctx, t, instruction, struct {
			Text string `json:"text"`
		}{text})
		if err != nil {
			return true, err
		}
		found := verdictForm.FindStringSubmatch(answer)
		if found == nil {
			return true, errNoJudgement
		}
		return found[1] != "true", nil
	})
	c.usesModel = true
	for i, s := range subjects {
		if strings.TrimSpace(s) == "" {
			c.problem = fmt.Sprintf("topics[%d] is empty", i)
		}
	}
	if len(subjects) == 0 {
		c.problem = "topics has no subject"
	}
	return c
}
