package main

import (
	"io"
	"log/slog"
	"os"
	"strings"
)

// newLogger writes the service's own log: text for people on a terminal, JSON
// elsewhere. slog quotes control characters in both.
func newLogger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: logLevel(os.Getenv("EXECUTION_PLANE_LOG_LEVEL"))}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

func logLevel(name string) slog.Level {
	switch strings.ToLower(name) {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}
