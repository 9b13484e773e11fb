package remote

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Errors of the mesh name API fields, but users of the command line know flags and arguments.

// flagByField maps API fields to flags and arguments.
var flagByField = map[string]string{
	"page_size": "--limit", "limit": "--limit", "target": "--target", "profile": "--profile", "priority": "--priority",
	"max_messages": "--max-messages", "strategy": "--compact", "auto_compact": "--compact", "summary_by_model": "--summary-by",
	"request_id": "--request-id", "reason": "--reason", "timeout": "--timeout",
	"user_id": "id of the user", "session_id": "id of the session", "instance_id": "id of the instance", "agent": "name of the agent",
}

var (
	fieldPrefix        = regexp.MustCompile(`(^|; )([a-z_]+): `)
	patternRule        = regexp.MustCompile(`does not match regex pattern .\^\[A-Za-z0-9([^\]]+)\]\{(\d+),(\d+)\}\$.`)
	commandsForMethods = strings.NewReplacer("see ListAgents", "see: troupe get agents", "GetSession shows what waits", "troupe get approvals shows what waits")
)

// translateToFlags replaces the API fields in a request error with flags and arguments. It returns other errors
// unchanged.
func translateToFlags(err error) error {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || !failure.Is(err, failure.UserInvalidInput, failure.NotFound, failure.TurnNotOpen) {
		return err
	}
	text := fieldPrefix.ReplaceAllStringFunc(e.Message, func(begin string) string {
		parts := fieldPrefix.FindStringSubmatch(begin)
		if flag, known := flagByField[parts[2]]; known {
			return parts[1] + flag + ": "
		}
		return begin
	})
	text = patternRule.ReplaceAllStringFunc(text, func(rule string) string {
		parts := patternRule.FindStringSubmatch(rule)
		return fmt.Sprintf("want %s to %s letters, digits and %s", parts[2], parts[3], strings.Join(strings.Split(parts[1], ""), " "))
	})
	explained := *e
	explained.Message = commandsForMethods.Replace(text)
	return &explained
}
