package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	part := flags.String("part", "", "parts to run, separated by commas; empty: all of "+strings.Join(partNames(), ", "))
	output := flags.String("o", "table", "table or json")
	fsync := flags.String("fsync", "both", "on, off or both: whether PostgreSQL's commits wait for the disk")
	rounds := flags.Int("rounds", 0, "pairs to take of each figure; 0: as the size says")
	tiny := flags.Bool("tiny", false, "run everything once and small: to see that it works, not for figures")
	profile := flags.String("cpuprofile", "", "write a CPU profile of this program, the service included, to a file")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; parts are named by -part", flags.Arg(0))
	}
	if *output != "table" && *output != "json" {
		return fmt.Errorf("-o %q: use table or json", *output)
	}
	parts, err := pick(*part)
	if err != nil {
		return err
	}
	modes, err := fsyncModes(*fsync)
	if err != nil {
		return err
	}
	size := full()
	if *tiny {
		size = smoke()
	}
	if *rounds > 0 {
		size.rounds = *rounds
	}
	stop, err := startProfile(*profile)
	if err != nil {
		return err
	}
	defer stop()
	r, err := measure(ctx, parts, modes, size, func(line string) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return err
	}
	if *output == "json" {
		return r.json(os.Stdout)
	}
	return r.table(os.Stdout)
}

// startProfile profiles into a file, or does nothing without one.
func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write the profile: %w", err), f.Close())
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}

func fsyncModes(s string) ([]bool, error) {
	switch s {
	case "on":
		return []bool{true}, nil
	case "off":
		return []bool{false}, nil
	case "both":
		return []bool{true, false}, nil
	}
	return nil, fmt.Errorf("-fsync %q: use on, off or both", s)
}
