// Package a2a lets clients of the A2A protocol talk to a mesh. A session of the mesh is an A2A context, and a turn
// is a task (C-17). The bridge is an ordinary client of the mesh and stores nothing, because it reads the state of
// a task from the task's trace. Any number of bridges may therefore serve one mesh, and a restart of a bridge
// loses nothing.
package a2a

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Config configures a Bridge.
type Config struct {
	// Client reaches the mesh.
	Client *client.Client
	// Log receives the details of errors, which clients do not see.
	Log *zap.Logger
	// URL is the address at which clients reach the bridge, such as http://127.0.0.1:7410. The agent card contains
	// it.
	URL string
	// Name is the agent name of the mesh in the agent card (empty means troupe).
	Name string
	// DefaultTarget is the workflow or agent for messages that specify no target (empty means the default of the
	// mesh).
	DefaultTarget string
	// ForwardTokens makes the bridge forward the bearer token of each request to the mesh, which authenticates the
	// caller with it. The agent card then requires a token.
	ForwardTokens bool
}

// Bridge serves the A2A protocol. It is safe for concurrent use. It implements a2asrv.RequestHandler, so that a
// caller can add transports that Handler does not serve.
type Bridge struct {
	client         *client.Client
	log            *zap.Logger
	url            string
	name           string
	defaultTarget  string
	forwardsTokens bool
}

var _ a2asrv.RequestHandler = (*Bridge)(nil)

// New returns a bridge.
func New(cfg Config) *Bridge {
	b := &Bridge{cfg.Client, cfg.Log, strings.TrimSuffix(cfg.URL, "/"), cfg.Name, cfg.DefaultTarget, cfg.ForwardTokens}
	if b.log == nil {
		b.log = zap.NewNop()
	}
	if b.name == "" {
		b.name = "troupe"
	}
	return b
}

// keepAlive is the interval between keep-alive messages on an idle stream.
const keepAlive = 15 * time.Second

// maxBodyBytes limits the body of a request. It leaves room for 256 KiB of text in JSON and 3 MiB of files in
// base64.
const maxBodyBytes = 6 << 20

// Handler returns an HTTP handler that serves the agent card, JSON-RPC at /, and REST, in versions 1.0 and 0.3 of
// the protocol. A request without a version is handled as version 0.3, as the protocol requires.
func (b *Bridge) Handler() http.Handler {
	quiet := &a2asrv.InterceptedHandler{Handler: b, Logger: slog.New(slog.DiscardHandler)}
	options := []a2asrv.TransportOption{a2asrv.WithTransportKeepAlive(keepAlive), a2asrv.WithTransportPanicHandler(b.reportPanic)}
	now, before := a2asrv.NewJSONRPCHandler(quiet, options...), a2av0.NewJSONRPCHandler(quiet, options...)
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewAgentCardProducer(a2asrv.AgentCardProducerFn(b.agentCard))))
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(a2a.SvcParamVersion) {
		case "", string(a2av0.Version):
			before.ServeHTTP(w, r)
		default:
			now.ServeHTTP(w, r)
		}
	})
	mux.Handle(a2av0.RESTPathPrefix+"/", a2av0.NewRESTHandler(quiet, options...))
	mux.Handle("/", a2asrv.NewRESTHandler(quiet, options...))
	return rejectCrossSite(b.forwardToken(http.MaxBytesHandler(mux, maxBodyBytes)), b.url)
}

// reportPanic logs a panic and returns the error that is sent to the client.
func (b *Bridge) reportPanic(p any) error {
	b.log.Error("panic while serving A2A", zap.Any("panic", p), zap.Stack("stack"))
	return toA2AError(errors.New("panic"))
}

// toClientError converts an error to the one that is sent to the client. Internal and server errors are logged in
// full, because the client does not get their details.
func (b *Bridge) toClientError(method string, err error) error {
	sent := toA2AError(err)
	left := failure.ModeOf(err) == failure.UserCancelled // the client disconnected
	if !left && (errors.Is(sent, a2a.ErrInternalError) || errors.Is(sent, a2a.ErrServerError)) {
		b.log.Warn("A2A call failed", zap.String("method", method), zap.String("mode", string(failure.ModeOf(err))), zap.Error(err))
	}
	return sent
}

var (
	errPushUnsupported = a2a.NewError(a2a.ErrPushNotificationNotSupported,
		"push notifications are not supported; follow it with SubscribeToTask, or ask with GetTask")
	errListUnsupported         = a2a.NewError(a2a.ErrUnsupportedOperation, "tasks are not listed; ask for one by its id")
	errExtendedCardUnsupported = a2a.NewError(a2a.ErrUnsupportedOperation, "there is only the public card")
)

// ListTasks implements a2asrv.RequestHandler. It is not supported, because the mesh does not know which client a
// task belongs to.
func (b *Bridge) ListTasks(context.Context, *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	return nil, errListUnsupported
}

// GetExtendedAgentCard implements a2asrv.RequestHandler. It is not supported.
func (b *Bridge) GetExtendedAgentCard(context.Context, *a2a.GetExtendedAgentCardRequest) (*a2a.AgentCard, error) {
	return nil, errExtendedCardUnsupported
}

// GetTaskPushConfig implements a2asrv.RequestHandler. It is not supported.
func (b *Bridge) GetTaskPushConfig(context.Context, *a2a.GetTaskPushConfigRequest) (*a2a.PushConfig, error) {
	return nil, errPushUnsupported
}

// ListTaskPushConfigs implements a2asrv.RequestHandler. It is not supported.
func (b *Bridge) ListTaskPushConfigs(context.Context, *a2a.ListTaskPushConfigRequest) (*a2a.ListTaskPushConfigResponse, error) {
	return nil, errPushUnsupported
}

// CreateTaskPushConfig implements a2asrv.RequestHandler. It is not supported.
func (b *Bridge) CreateTaskPushConfig(context.Context, *a2a.PushConfig) (*a2a.PushConfig, error) {
	return nil, errPushUnsupported
}

// DeleteTaskPushConfig implements a2asrv.RequestHandler. It is not supported.
func (b *Bridge) DeleteTaskPushConfig(context.Context, *a2a.DeleteTaskPushConfigRequest) error {
	return errPushUnsupported
}
