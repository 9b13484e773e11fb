package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/secret"
)

var testSource = llm.Source{Provider: "openai", Model: "openai/gpt-5", KeyVariable: "OPENAI_API_KEY", Key: secret.New("sk-1234")}

// providerKinds lists the kinds of errors that a provider may return.
var providerKinds = []llm.Kind{
	llm.Authentication, llm.Permission, llm.RateLimit, llm.Credits, llm.PaidModel, llm.BadRequest,
	llm.ContextLength, llm.NotFound, llm.Connection, llm.Unavailable, llm.Malformed, llm.ContentFiltered,
}

// Req: CO-13
func TestSource_ErrorsOfEveryKindHaveModeFactsAndAdvice(t *testing.T) {
	for _, kind := range providerKinds {
		err := testSource.NewError(kind, errors.New("says the provider"))
		f, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok)
		require.NotEqual(t, failure.Unknown, f.Mode, kind)
		require.False(t, f.Mode.Terminal(), kind)
		require.Equal(t, map[string]string{"kind": string(kind), "provider": "openai"}, f.Facts)
		require.Regexp(t, `^openai.* model openai/gpt-5.*[;,].*`, f.Message)
		require.NotContains(t, f.Message, "says the provider")
		require.ErrorContains(t, err, "says the provider")
		require.Equal(t, kind, llm.KindOf(err))
		require.Equal(t, kind.Retryable(), f.Mode.Retryable() && kind != llm.Malformed, "%s", kind)
	}
	require.Empty(t, llm.KindOf(io.EOF))
}

// Req: CO-13
func TestSource_ClassifiesByStatusUnlessTheAdapterDoes(t *testing.T) {
	for status, want := range map[int]llm.Kind{
		400: llm.BadRequest, 401: llm.Authentication, 402: llm.Credits, 403: llm.Permission, 404: llm.NotFound, 408: llm.Unavailable,
		413: llm.ContextLength, 418: llm.BadRequest, 429: llm.RateLimit, 500: llm.Unavailable, 503: llm.Unavailable, 529: llm.Unavailable,
	} {
		require.Equal(t, want, llm.KindOf(testSource.NewResponseError(status, nil, "", "")))
	}
	err := testSource.NewResponseError(http.StatusForbidden, http.Header{"Retry-After": {"3"}}, llm.PaidModel, "upgrade, sk-1234")
	e, ok := errors.AsType[*llm.Error](err)
	require.True(t, ok)
	require.Empty(t, cmp.Diff(llm.Error{Provider: "openai", Kind: llm.PaidModel, Status: 403, RetryAfter: 3 * time.Second},
		llm.Error{Provider: e.Provider, Kind: e.Kind, Status: e.Status, RetryAfter: e.RetryAfter}))
	require.Equal(t, "openai: paid_model (403): upgrade, [REDACTED]", e.Error())
	f, _ := errors.AsType[*failure.Error](err)
	require.Equal(t, "3s", f.Facts["retry_after"])
}

func TestSource_ConnectionErrorIsTheContextErrorAfterCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	require.Equal(t, llm.Connection, llm.KindOf(testSource.NewConnectionError(ctx, io.ErrUnexpectedEOF)))
	failed := testSource.NewError(llm.Credits, nil)
	require.Equal(t, failed, testSource.NewConnectionError(ctx, failed), "an error of the source stays unchanged")
	cancel()
	require.Equal(t, context.Canceled, testSource.NewConnectionError(ctx, io.ErrUnexpectedEOF))
}

// Req: CO-10
func TestSource_MissingKeyErrorNamesTheVariable(t *testing.T) {
	err := testSource.NewMissingKeyError()
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, "set OPENAI_API_KEY")
	require.NotContains(t, fmt.Sprintf("%+v %#v", testSource, testSource), "sk-1234")
}
