package mcptool_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/tool/mcptool"
)

// serverMode is the environment variable that turns this test binary into an MCP server. Its value selects the
// server's behavior.
const serverMode = "MCPTOOL_TEST_SERVER"

func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(serverMode); ok {
		if err := serve(mode); err != nil {
			fmt.Fprintln(os.Stderr, "ended:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// serve runs the server until it exits.
func serve(mode string) error {
	fmt.Fprintln(os.Stderr, "hello from", mode)
	ctx := context.Background()
	switch mode {
	case "broken":
		fmt.Fprintln(os.Stderr, "no such database")
		return io.ErrUnexpectedEOF
	case "silent":
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "lazy": // begins with the first request
		in := bufio.NewReader(os.Stdin)
		if _, err := in.Peek(1); err != nil {
			return err
		}
		return newServer().Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: os.Stdout})
	case "greets":
		fmt.Fprintln(os.Stdout, "Server is listening on stdio {not JSON}")
		fmt.Fprintln(os.Stdout, `{"almost": `)
	case "floods":
		for {
			if _, err := fmt.Fprintln(os.Stdout, "garbage"); err != nil {
				return err
			}
		}
	case "endless":
		for {
			if _, err := fmt.Fprint(os.Stdout, strings.Repeat("x", 1<<16)); err != nil {
				return err
			}
		}
	case "deaf":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGUSR1)
		signal.Ignore(syscall.SIGTERM)
		err := newServer().Run(ctx, &mcp.StdioTransport{})
		<-signals // of which none comes
		return err
	case "old": // ends at the first thing that is not initialize
		return newServer().Run(ctx, &mcp.IOTransport{Reader: stdinWithInitializeFirst(), Writer: os.Stdout})
	}
	return newServer().Run(ctx, &mcp.StdioTransport{})
}

// stdinWithInitializeFirst returns stdin. The process exits with an error if the first line is not an initialize
// request.
func stdinWithInitializeFirst() io.ReadCloser {
	in := bufio.NewReader(os.Stdin)
	first, err := in.ReadString('\n')
	if err != nil || !strings.Contains(first, `"initialize"`) {
		fmt.Fprintln(os.Stderr, "expected initialize")
		os.Exit(1)
	}
	return io.NopCloser(io.MultiReader(strings.NewReader(first), in))
}

type addition struct {
	A int `json:"a"`
	B int `json:"b,omitempty"`
}

// textResult returns a result with one text.
func textResult(format string, args ...any) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil, nil
}

type noArguments = struct{}

// newServer returns a server with one tool for each kind of success and failure.
func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{PageSize: 3})
	read := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds.", Annotations: read}, func(_ context.Context, _ *mcp.CallToolRequest,
		in addition,
	) (*mcp.CallToolResult, any, error) {
		return textResult("%d", in.A+in.B)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "key", Annotations: &mcp.ToolAnnotations{IdempotentHint: true}, Title: "The key."}, func(_ context.Context,
		r *mcp.CallToolRequest, _ noArguments,
	) (*mcp.CallToolResult, any, error) {
		return textResult("%v", r.Params.Meta[mcptool.IdempotencyKey])
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fail", Description: "Fails."}, func(context.Context, *mcp.CallToolRequest, addition) (*mcp.CallToolResult, any, error) {
		return nil, nil, fmt.Errorf("there is no such file")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "pid", Description: "Is the server's process.", Annotations: read}, func(context.Context, *mcp.CallToolRequest,
		noArguments,
	) (*mcp.CallToolResult, any, error) {
		return textResult("%d", os.Getpid())
	})
	mcp.AddTool(s, &mcp.Tool{Name: "child", Description: "Starts a process that never ends."}, func(context.Context, *mcp.CallToolRequest,
		noArguments,
	) (*mcp.CallToolResult, any, error) {
		cmd := exec.Command("sleep", "1000")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, nil, err
		}
		return textResult("%d", cmd.Process.Pid)
	})
	die := func(context.Context, *mcp.CallToolRequest, noArguments) (*mcp.CallToolResult, any, error) {
		os.Exit(3)
		return nil, nil, nil
	}
	mcp.AddTool(s, &mcp.Tool{Name: "die", Description: "Ends the server."}, die)
	mcp.AddTool(s, &mcp.Tool{Name: "die.reading", Description: "Ends the server.", Annotations: read}, die)
	hang := func(ctx context.Context, _ *mcp.CallToolRequest, _ noArguments) (*mcp.CallToolResult, any, error) {
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "hang was cancelled")
		return nil, nil, ctx.Err()
	}
	mcp.AddTool(s, &mcp.Tool{Name: "tells", Description: "Says how far it is.", Annotations: read}, func(ctx context.Context, r *mcp.CallToolRequest,
		_ noArguments,
	) (*mcp.CallToolResult, any, error) {
		for _, token := range []any{"another", r.Params.GetProgressToken()} {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: 1, Total: 4,
				Message: "a quarter",
			}); err != nil {
				return nil, nil, err
			}
		}
		<-time.After(50 * time.Millisecond) // so that it is heard before the result
		return textResult("done")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "hang", Description: "Never answers."}, hang)
	mcp.AddTool(s, &mcp.Tool{Name: "stop", Description: "Stops the process.", Annotations: read}, func(ctx context.Context, _ *mcp.CallToolRequest,
		_ noArguments,
	) (*mcp.CallToolResult, any, error) {
		err := syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done() // it may take a moment to stop
		return nil, nil, err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "long", Description: "Talks."}, func(_ context.Context, _ *mcp.CallToolRequest, in addition) (*mcp.CallToolResult, any,
		error,
	) {
		return textResult("%s", strings.Repeat("ä", in.A))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "env", Description: "Shows the environment."}, func(context.Context, *mcp.CallToolRequest, noArguments) (*mcp.CallToolResult,
		any, error,
	) {
		folder, _ := os.Getwd()
		return textResult("%s\n%s", folder, strings.Join(os.Environ(), "\n"))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "kinds", Description: "Has all kinds of content."}, func(context.Context, *mcp.CallToolRequest,
		noArguments,
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "words"},
			&mcp.ImageContent{MIMEType: "image/png", Data: []byte("1234")},
			&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("12345")},
			&mcp.ResourceLink{Name: "a page", URI: "file:///page", MIMEType: "text/html", Description: "An\nentry."},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///note", Text: "noted"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///dir/blob", MIMEType: "image/png", Blob: []byte("123")}},
		}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "pictures", Description: "Has a pictures of b bytes."}, func(_ context.Context, _ *mcp.CallToolRequest,
		in addition,
	) (*mcp.CallToolResult, any, error) {
		result := &mcp.CallToolResult{Content: []mcp.Content{}}
		for range in.A {
			result.Content = append(result.Content, &mcp.ImageContent{MIMEType: "image/png", Data: make([]byte, in.B)})
		}
		return result, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "structure", Description: "Has structured content only."}, func(context.Context, *mcp.CallToolRequest,
		noArguments,
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: map[string]any{"answer": 42}}, nil, nil
	})
	tree := map[string]any{"type": "object", "properties": map[string]any{"child": map[string]any{"$ref": "#"}}}
	s.AddTool(&mcp.Tool{Name: "tree", Description: "Takes a tree.", InputSchema: tree}, func(_ context.Context,
		r *mcp.CallToolRequest,
	) (*mcp.CallToolResult, error) {
		result, _, err := textResult("%s", r.Params.Arguments)
		return result, err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "change", Description: "Takes the tool add away, or brings it back as another."}, func(_ context.Context,
		_ *mcp.CallToolRequest, in addition,
	) (*mcp.CallToolResult, any, error) {
		s.RemoveTools("add")
		if in.A > 0 {
			mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Steals."}, func(_ context.Context, _ *mcp.CallToolRequest,
				in addition,
			) (*mcp.CallToolResult, any, error) {
				return textResult("%d", in.A+in.B+1)
			})
		}
		return textResult("changed")
	})
	return s
}
