package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "1.0.0"

// cli is the whole command line.
type cli struct {
	Global

	Demo           demoCmd           `cmd:"" help:"Start everything on this machine, run real jobs, and verify the ledger."`
	Serve          serveCmd          `cmd:"" help:"Run the service."`
	Runner         runnerCmd         `cmd:"" help:"Run a runner, or enrol one."`
	Submit         submitCmd         `cmd:"" help:"Submit a JobSpec, show its progress, and wait for its result."`
	Validate       validateCmd       `cmd:"" help:"Say what would come of a JobSpec; nothing is written."`
	Get            getCmd            `cmd:"" help:"Show one attempt, and its result once it has ended."`
	List           listCmd           `cmd:"" help:"List attempts, the newest first."`
	Compare        compareCmd        `cmd:"" help:"Say in what two attempts differ: job, policy, outcome, hosts, evidence, artifacts."`
	Watch          watchCmd          `cmd:"" help:"Follow an attempt until it ends."`
	Logs           logsCmd           `cmd:"" help:"Print an attempt's log."`
	Cancel         cancelCmd         `cmd:"" help:"Ask for an attempt's end."`
	SealIncomplete sealIncompleteCmd `cmd:"" help:"End a finalizing attempt with what the ledger knows (operator)."`

	Events  eventsCmd  `cmd:"" help:"Print an attempt's events, or the whole feed."`
	Explain explainCmd `cmd:"" help:"Say why an attempt is where it is."`
	Verify  verifyCmd  `cmd:"" help:"Prove the ledger: chains, heads, feed, and projections against a fold."`
	Scrub   scrubCmd   `cmd:"" help:"Read every stored object and compare it with the ledger."`
	Runners runnersCmd `cmd:"" help:"List runners, or pause, resume, drain, evict one."`
	Audit   auditCmd   `cmd:"" help:"List what operators did and what jobs were let do beyond others."`
	Token   tokenCmd   `cmd:"" help:"Create, list and revoke bearer tokens."`
	Policy  policyCmd  `cmd:"" help:"Check a policy bundle, explain what it decides, and make it the active one."`

	Package  packageCmd  `cmd:"" help:"Make, look at and push packages of playbooks."`
	Artifact artifactCmd `cmd:"" help:"Put files to operations for their jobs, list them, and fetch what attempts made."`

	Callbacks callbacksCmd `cmd:"" help:"List callbacks and their endpoints, replay, stop, resume."`
	Forwarder forwarderCmd `cmd:"" help:"Show how publishing to Kafka goes; retry or skip what is parked."`

	Migrate migrateCmd `cmd:"" help:"Bring the database's schema up to date."`

	Projections projectionsCmd `cmd:"" help:"Check or rebuild the read models."`
	Executor    executorCmd    `cmd:"" help:"Try an executor without a service."`
	Shim        shimCmd        `cmd:"" hidden:""`

	Version kong.VersionFlag `help:"Print the version and end."`
}

// Global are the flags of every verb.
type Global struct {
	URL       string `name:"url" env:"EXECUTION_PLANE_URL" default:"http://127.0.0.1:8080" help:"Address of the service."`
	Token     string `name:"token" env:"EXECUTION_PLANE_TOKEN" help:"Bearer token. Better given by the environment or --token-file: a command line can be seen by others."`
	TokenFile string `name:"token-file" env:"EXECUTION_PLANE_TOKEN_FILE" help:"File that holds the bearer token."`
	Output    string `short:"o" enum:"human,json" default:"human" help:"Form of the answer: human or json."`
}

// session is what a verb works with.
type session struct {
	ctx context.Context
	Global
	out io.Writer // answers
	err io.Writer // progress and errors
	in  io.Reader
}

func main() {
	// Hidden verbs that speak a protocol on their standard streams, and must not
	// pass through anything that reads or writes them.
	if code, done := protocolVerb(os.Args[1:]); done {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and returns its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	var c cli
	ended := -1
	parser, err := kong.New(&c,
		kong.Name("execution-plane"),
		kong.Description("The event-sourced execution ledger under an infrastructure control plane."),
		kong.Vars{"version": "execution-plane " + version, "data_dir": defaultDataDir()},
		kong.Writers(out, errOut), kong.Exit(func(code int) { ended = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.UsageOnError(),
	)
	if err != nil {
		fmt.Fprintln(errOut, "execution-plane:", err)
		return exitUsage
	}
	k, err := parser.Parse(args)
	if ended >= 0 {
		return ended // help or version was printed
	}
	if err != nil {
		fmt.Fprintf(errOut, "execution-plane: %v\nSee: execution-plane --help\n", err)
		return exitUsage
	}
	s := &session{ctx: ctx, Global: c.Global, out: out, err: errOut, in: in}
	err = k.Run(s)
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return exit.code
	}
	if err != nil {
		report(s, err)
	}
	return exitCode(err)
}
