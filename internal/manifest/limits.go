package manifest

import "go.yaml.in/yaml/v3"

// checkSize returns an error for a document that is too deep or holds too many values. Aliases let a short file
// expand to a huge document, or to one that contains itself. After this check, walking the document always ends.
func checkSize(file string, root *yaml.Node) error {
	b := sizeChecker{file: file, remaining: MaxValues}
	return b.walk(root, 0)
}

type sizeChecker struct {
	file      string
	remaining int // number of values that the document may still hold
}

func (s *sizeChecker) walk(node *yaml.Node, depth int) error {
	if node.Kind == yaml.AliasNode { // an alias that contains itself ends at MaxDepth
		node = node.Alias
	}
	if depth > MaxDepth {
		return Place{s.file, node.Line}.Errorf("this is more than %d levels deep, or contains itself; use fewer", MaxDepth)
	}
	if s.remaining--; s.remaining < 0 {
		return Place{s.file, node.Line}.Errorf("the document has more than %d values, with those that aliases repeat; split it", MaxValues)
	}
	for _, part := range node.Content {
		if err := s.walk(part, depth+1); err != nil {
			return err
		}
	}
	return nil
}
