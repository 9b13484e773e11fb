package testrun

import (
	"encoding/json"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// scriptedReplies converts the declared replies into replies of a scripted model.
func scriptedReplies(doc manifest.Document, declared []Reply) (all []scripted.Reply, _ error) {
	for i, r := range declared {
		ways := 0
		for _, set := range []bool{r.Say != "", !r.Call.IsZero(), r.Fail != ""} {
			if set {
				ways++
			}
		}
		if ways != 1 {
			return nil, doc.PlaceOf("model", i).Errorf("model[%d]: want exactly one of say, call and fail", i)
		}
		switch {
		case r.Say != "":
			all = append(all, scripted.Say(r.Say))
		case r.Fail != "":
			all = append(all, scripted.Fail(failure.New(failure.ResourceAPI, "script", r.Fail)))
		default:
			calls, err := toolCalls(&r.Call)
			if err != nil {
				return nil, doc.PlaceOf("model", i, "call").Errorf("model[%d].call: want {tool: {argument: value}}", i)
			}
			all = append(all, scripted.Call(calls...))
		}
	}
	return all, nil
}

// toolCalls returns the tool calls of one reply, in order.
func toolCalls(node *yaml.Node) (all []conversation.ToolCall, _ error) {
	var named map[string]map[string]any
	if err := node.Decode(&named); err != nil {
		return nil, err
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name := node.Content[i].Value
		arguments := named[name]
		if arguments == nil {
			arguments = map[string]any{}
		}
		text, err := json.Marshal(arguments)
		if err != nil {
			return nil, err
		}
		all = append(all, conversation.ToolCall{Name: name, Arguments: string(text)})
	}
	return all, nil
}
