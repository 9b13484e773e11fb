package redistrace

import (
	"strings"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Keys shared by all tenants. Each is a single key, because its value is read as a whole.
const (
	openKey    = "o:{running}:open"
	stopsKey   = "o:{running}:stops"
	erasingKey = "o:{erasing}:list"
)

// openKeys are the KEYS of heartbeat.lua.
var openKeys = []string{openKey, stopsKey}

// traceKeys returns the keys of the record and of the events of a trace.
func traceKeys(ref trace.Ref) []string {
	tag := "o:{" + ref.Tenant + "/" + ref.Trace + "}:"
	return []string{tag + "rec", tag + "ev"}
}

// recordKey returns the key of the record of a trace.
func recordKey(ref trace.Ref) string { return traceKeys(ref)[0] }

// eventsKey returns the key of the events of a trace.
func eventsKey(ref trace.Ref) string { return traceKeys(ref)[1] }

// childrenKey returns the key of the child sessions in which agents of a trace work.
func childrenKey(ref trace.Ref) string { return "o:{" + ref.Tenant + "/" + ref.Trace + "}:children" }

// followersKey returns the key of the number of clients without whom the turn of a trace is cancelled.
func followersKey(ref trace.Ref) string {
	return "o:{" + ref.Tenant + "/" + ref.Trace + "}:followers"
}

func indexKey(tenant string) string { return "o:idx:{" + tenant + "}" }

func runKey(tenant, root string) string { return "o:run:{" + tenant + "/" + root + "}" }

func quarantineKey(tenant string) string { return "o:quarantine:{" + tenant + "}" }

// userSessionsKey returns the key of the sessions in which a user had traces.
func userSessionsKey(tenant, user string) string { return "o:{" + tenant + "/u/" + user + "}:sessions" }

// auditKey returns the key of the set of pointers to the decision events of a type, ordered by time.
func auditKey(tenant string, kind troupev1.DecisionType) string {
	return "o:audit:{" + tenant + "}:" + strings.ToLower(strings.TrimPrefix(kind.String(), "DECISION_TYPE_"))
}

// sessionKeys returns the key of the list of a session's traces, and the key of its mark.
func sessionKeys(s trace.Subject) (traces, mark string) {
	tag := "o:{" + s.Tenant + "/" + s.Session + "}:"
	return tag + "traces", tag + "erased"
}

// markKey returns the key of the mark of a session or a user.
func markKey(s trace.Subject) string {
	if s.User != "" {
		return "o:{" + s.Tenant + "/u/" + s.User + "}:erased"
	}
	_, mark := sessionKeys(s)
	return mark
}

// openMember returns the member that stands for a trace in the list of open traces.
func openMember(ref trace.Ref) string { return ref.Tenant + "/" + ref.Trace }

// parseOpenMember is the inverse of openMember.
func parseOpenMember(member string) trace.Ref {
	tenant, id, _ := strings.Cut(member, "/")
	return trace.Ref{Tenant: tenant, Trace: id}
}

func sessionSubject(tenant, id string) trace.Subject {
	return trace.Subject{Tenant: tenant, Session: id}
}

// erasingMember returns the member that stands for a subject in the list of erasures. No id contains a slash.
func erasingMember(s trace.Subject) string {
	if s.User != "" {
		return s.Tenant + "/u/" + s.User
	}
	return s.Tenant + "/s/" + s.Session
}

// parseErasingMember is the inverse of erasingMember.
func parseErasingMember(member string) trace.Subject {
	tenant, rest, _ := strings.Cut(member, "/")
	kind, id, _ := strings.Cut(rest, "/")
	if kind == "u" {
		return trace.Subject{Tenant: tenant, User: id}
	}
	return sessionSubject(tenant, id)
}
