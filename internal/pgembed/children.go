package pgembed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) []int {
	var children []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // constant pattern
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended in between
		}
		// The name in brackets may hold anything, so fields count from its end.
		rest := text[bytes.LastIndexByte(text, ')')+1:]
		var state string
		var parent int
		if _, err := fmt.Sscan(string(rest), &state, &parent); err != nil || parent != pid {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			children = append(children, child)
		}
	}
	return children
}
