package redistest

import (
	"os"
	"path/filepath"
)

// Backup copies the data of a stopped server and returns the folder of the copy.
func (s *Server) Backup() string {
	s.t.Helper()
	to := filepath.Join(s.t.TempDir(), "backup")
	if err := os.CopyFS(to, os.DirFS(s.dir)); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	return to
}

// Restore replaces the data of a stopped server with a backup. An empty folder name removes all data.
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
