package redistest

import (
	"os"
	"path/filepath"
)

// Backup copies the data of a server that does not run, and returns where they are.
func (s *Server) Backup() string {
	s.t.Helper()
	to := filepath.Join(s.t.TempDir(), "backup")
	if err := os.CopyFS(to, os.DirFS(s.dir)); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	return to
}

// Restore puts a backup in the place of the data of a server that does not run. Empty: it
// loses them all.
func (s *Server) Restore(backup string) {
	s.t.Helper()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	if backup == "" {
		return
	}
	if err := os.CopyFS(s.dir, os.DirFS(backup)); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}
