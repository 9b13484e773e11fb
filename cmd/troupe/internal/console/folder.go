package console

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

// Folder is the value of a flag that must name an existing folder. An empty flag or environment variable selects
// no folder.
type Folder string

// Decode implements kong.MapperValue.
func (f *Folder) Decode(ctx *kong.DecodeContext) error {
	var path string
	if err := ctx.Scan.PopValueInto("folder", &path); err != nil {
		return err
	}
	if path == "" {
		*f = ""
		return nil
	}
	path = kong.ExpandPath(path)
	switch info, err := os.Stat(path); {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is a file, not a folder", path)
	}
	*f = Folder(path)
	return nil
}
