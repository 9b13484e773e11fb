package a2a

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each failure mode maps to an A2A error that says whether a retry may succeed. Causes, and errors that are not
// failures, are not sent to the client.
func TestToA2AError_HidesCauses(t *testing.T) {
	for number := range troupev1.FailureMode_name {
		f := grpcfailure.FromProto(&troupev1.Failure{Mode: troupev1.FailureMode(number), Op: "memory.Private", Message: "You cannot."})
		err := toA2AError(fmt.Errorf("somewhere: %w", f.Because(errors.New("secret of 10.0.0.1"))))
		told, ok := errors.AsType[*a2a.Error](err)
		require.True(t, ok, f.Mode)
		require.Equal(t, "You cannot.", told.Error(), f.Mode)
		require.NotNil(t, told.Err)
		if f.Mode.Retryable() {
			require.ErrorIs(t, told, a2a.ErrServerError, f.Mode)
		}
		require.Equal(t, map[string]string{"mode": f.Mode.Reason(), "retryable": fmt.Sprint(f.Mode.Retryable())}, told.ErrorInfo().Value["metadata"])
	}
	unknown := toA2AError(errors.New("secret of 10.0.0.1"))
	require.ErrorIs(t, unknown, a2a.ErrInternalError)
	require.NotContains(t, unknown.Error(), "secret")
	require.NotContains(t, toA2AError(context.Canceled).Error(), "context")
	require.Same(t, errPushUnsupported, toA2AError(errPushUnsupported))
	require.NoError(t, toA2AError(nil))
}

// A message is accepted if it contains either text and files or answers. Any other message is rejected with the
// right A2A error.
func TestAddInput_AcceptsEitherContentOrAnswers(t *testing.T) {
	data := func(answers ...any) *a2a.Part { return a2a.NewDataPart(map[string]any{"answers": answers}) }
	yes := map[string]any{"id": "1-1", "verdict": "approve"}
	for name, tc := range map[string]struct {
		parts []*a2a.Part
		fails error
	}{
		"texts":                         {[]*a2a.Part{a2a.NewTextPart("a"), a2a.NewTextPart("b")}, nil},
		"answers":                       {[]*a2a.Part{data(yes)}, nil},
		"answers and white space":       {[]*a2a.Part{a2a.NewTextPart(" "), data(yes)}, nil},
		"both":                          {[]*a2a.Part{a2a.NewTextPart("a"), data(yes)}, a2a.ErrInvalidParams},
		"answers twice":                 {[]*a2a.Part{data(yes), data(yes)}, a2a.ErrInvalidParams},
		"no answer":                     {[]*a2a.Part{data()}, a2a.ErrInvalidParams},
		"unknown verdict":               {[]*a2a.Part{data(map[string]any{"id": "1-1", "verdict": "maybe"})}, a2a.ErrInvalidParams},
		"no verdict":                    {[]*a2a.Part{data(map[string]any{"id": "1-1"})}, a2a.ErrInvalidParams},
		"a credential":                  {[]*a2a.Part{data(map[string]any{"id": "1-1", "verdict": "approve", "sealed": "AQID"})}, nil},
		"credential that is not base64": {[]*a2a.Part{data(map[string]any{"id": "1-1", "verdict": "approve", "sealed": "!"})}, a2a.ErrInvalidParams},
		"unknown field":                 {[]*a2a.Part{data(map[string]any{"id": "1-1", "verdict": "deny", "by": "x"})}, a2a.ErrInvalidParams},
		"other data":                    {[]*a2a.Part{a2a.NewDataPart("x")}, a2a.ErrInvalidParams},
		"a file":                        {[]*a2a.Part{a2a.NewRawPart([]byte("x"))}, nil},
		"a file and a text":             {[]*a2a.Part{a2a.NewRawPart([]byte("x")), a2a.NewTextPart("a")}, nil},
		"a file and answers":            {[]*a2a.Part{a2a.NewRawPart([]byte("x")), data(yes)}, a2a.ErrInvalidParams},
		"file given by URL":             {[]*a2a.Part{a2a.NewFileURLPart("http://x", "")}, a2a.ErrUnsupportedContentType},
	} {
		t.Run(name, func(t *testing.T) {
			var turn troupev1.OrchestrateRequest
			err := addInput(&turn, a2a.NewMessage(a2a.MessageRoleUser, tc.parts...))
			require.ErrorIs(t, err, tc.fails)
			if tc.fails == nil {
				require.True(t, turn.GetInput() != nil || len(turn.GetParts()) > 0)
			}
		})
	}
}

// A file keeps its name and bytes. A file without a name is named by its position among the files of the message.
func TestAddInput_NamesFilesWithoutName(t *testing.T) {
	named := &a2a.Part{Content: a2a.Raw("a"), Filename: "a.png", MediaType: "image/png"}
	var turn troupev1.OrchestrateRequest
	require.NoError(t, addInput(&turn, a2a.NewMessage(a2a.MessageRoleUser, named, a2a.NewRawPart([]byte("b")))))
	require.Nil(t, turn.GetInput())
	for i, want := range []*troupev1.Blob{{Name: "a.png", MediaType: "image/png", Data: []byte("a")}, {Name: "file-2", Data: []byte("b")}} {
		require.Empty(t, cmp.Diff(want, turn.GetParts()[i].GetBlob(), protocmp.Transform()))
	}
}

// Sealed credentials are sent to the mesh but never shown in a task (LP-37).
func TestWithoutSecrets_DropsSealedCredentials(t *testing.T) {
	said := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(map[string]any{"answers": []any{map[string]any{
		"id":      "1-1",
		"verdict": "approve", "sealed": "AQID",
	}}}))
	var turn troupev1.OrchestrateRequest
	require.NoError(t, addInput(&turn, said))
	require.Equal(t, []byte{1, 2, 3}, turn.GetAnswers().GetAnswers()[0].GetSealed())
	told := withoutSecrets(said, &turn)
	require.Equal(t, said.ID, told.ID)
	require.Equal(t, itemData{"answers": []itemData{{"id": "1-1", "verdict": "approve", "text": ""}}}, told.Parts[0].Data())
	require.Contains(t, said.Parts[0].Data().(map[string]any)["answers"].([]any)[0], "sealed", "the message of the client is left alone")
}

// The request id of a turn contains the id of the task that it continues. A request id in another form contains
// none.
func TestTaskFromRequestID_IgnoresForeignIDs(t *testing.T) {
	for id, want := range map[string]string{
		requestIDFromMessage(taskID, "m1"): taskID, requestIDFromMessage("", "m1"): "", "sub-" + taskID: "", "a2a:x:y": "", "": "",
	} {
		require.Equal(t, want, taskFromRequestID(id), id)
	}
	require.Nil(t, parentFromReferences(&a2a.Message{ReferenceTasks: []a2a.TaskID{"of another system"}}))
	require.Equal(t, taskID, parentFromReferences(&a2a.Message{ReferenceTasks: []a2a.TaskID{"of another system", taskID}}).GetTraceId())
}

// A web page in a browser on the bridge's machine cannot send requests to the mesh.
func TestRejectCrossSite_RejectsWebPages(t *testing.T) {
	for name, tc := range map[string]struct {
		local, host, origin, method string
		status                      int
	}{
		"a program":                             {"127.0.0.1:7410", "127.0.0.1:7410", "", http.MethodPost, http.StatusOK},
		"a program, by name":                    {"127.0.0.1:7410", "localhost:7410", "", http.MethodPost, http.StatusOK},
		"a program, by IPv6":                    {"[::1]:7410", "[::1]:7410", "", http.MethodPost, http.StatusOK},
		"a proxy":                               {"127.0.0.1:7410", "agents.example.com", "", http.MethodPost, http.StatusOK},
		"a page of another origin":              {"127.0.0.1:7410", "127.0.0.1:7410", "http://evil.example", http.MethodPost, http.StatusForbidden},
		"a page after DNS rebinding":            {"127.0.0.1:7410", "evil.example:7410", "http://evil.example:7410", http.MethodPost, http.StatusForbidden},
		"a page after DNS rebinding, GET":       {"127.0.0.1:7410", "evil.example:7410", "", http.MethodGet, http.StatusForbidden},
		"a public bridge":                       {"10.0.0.1:7410", "mesh.example:7410", "", http.MethodPost, http.StatusOK},
		"page of another origin, public bridge": {"10.0.0.1:7410", "mesh.example:7410", "http://evil.example", http.MethodPost, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			local, err := net.ResolveTCPAddr("tcp", tc.local)
			require.NoError(t, err)
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local)), tc.method, "/", http.NoBody)
			r.Host = tc.host
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			w := httptest.NewRecorder()
			rejectCrossSite(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "https://agents.example.com").ServeHTTP(w, r)
			require.Equal(t, tc.status, w.Code)
		})
	}
}
