// Command asker sends one question to an orchestrator and prints the answer.
package main

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: asker HOST:PORT QUESTION")
		os.Exit(2)
	}
	if err := ask(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(address, question string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	req := &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: question}}
	for e, err := range client.New(conn).Turn(context.Background(), req) {
		if err != nil {
			return err
		}
		if done := e.GetTurnResult(); done != nil {
			fmt.Println(done.GetText())
		}
	}
	return nil
}
