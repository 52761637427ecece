// Command consumer reads what the execution plane publishes to Kafka, drops what
// comes again, and says what is missing or was changed. It is an example to copy:
// package ledger is the logic, package reader the client, and this prints.
//
//	go run ./examples/consumer -brokers localhost:9092 -state /var/lib/consumer
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/examples/consumer/reader"
)

// passwordVariable holds the password of -user, so that no process list shows it.
const passwordVariable = "KAFKA_PASSWORD"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("consumer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	brokers := flags.String("brokers", "localhost:9092", "addresses of brokers, separated by commas")
	topics := flags.String("topics", "execution.attempts,execution.heartbeats,execution.runners,execution.callbacks,execution.audit", "topics, separated by commas")
	group := flags.String("group", "execution-plane-consumer", "consumer group; its offsets say what was handled")
	folder := flags.String("state", "", "folder for what was handled; without it a restart may handle records again")
	output := flags.String("o", "text", "text, or json: one object for each record")
	whole := flags.Bool("chain", false, "put each stream's chain together from all topics; for one process that reads every partition from its beginning")
	secure := flags.Bool("tls", false, "speak TLS")
	ca := flags.String("ca", "", "PEM file with the certificates that sign for the brokers; implies -tls")
	user := flags.String("user", "", "SASL/PLAIN user; the password stands in "+passwordVariable)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *output != "text" && *output != "json" {
		return fmt.Errorf("-o is text or json, not %q", *output)
	}
	roots, err := certificates(*ca)
	if err != nil {
		return err
	}
	p := &printer{out: stdout, json: *output == "json"}
	if *whole {
		p.chain = ledger.NewChain()
	}
	err = reader.Run(ctx, reader.Config{
		Brokers: strings.Split(*brokers, ","), Topics: strings.Split(*topics, ","), Group: *group, State: *folder,
		Log: slog.New(slog.NewTextHandler(stderr, nil)),
		Client: func(c *sarama.Config) {
			c.Net.TLS.Enable, c.Net.TLS.Config = *secure || *ca != "", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
			c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = *user != "", *user, os.Getenv(passwordVariable)
		},
	}, p.print)
	return errors.Join(err, p.holes())
}

// certificates reads a PEM file; "" gives the system's.
func certificates(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read -ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read -ca: %s holds no certificate in PEM", path)
	}
	return pool, nil
}

// printer writes a line for each record that is told of. Partitions are read at the
// same time.
type printer struct {
	mu    sync.Mutex
	out   io.Writer
	json  bool
	chain *ledger.Chain // nil: not put together
}

// line is a record in JSON.
type line struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	Offset    int64            `json:"offset"`
	Stream    string           `json:"stream,omitempty"`
	Version   int64            `json:"version,omitempty"`
	ID        *ledger.UUID     `json:"event_id,omitempty"`
	Type      string           `json:"type,omitempty"`
	Time      string           `json:"time,omitempty"`
	Actor     *ledger.Actor    `json:"actor,omitempty"`
	Hash      *ledger.Digest   `json:"hash,omitempty"`
	Replayed  bool             `json:"replayed,omitempty"`
	Payload   json.RawMessage  `json:"payload,omitempty"`
	Findings  []ledger.Finding `json:"findings,omitempty"`
}

func (p *printer) print(_ context.Context, r reader.Read) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chain != nil && r.Fresh {
		if err := p.chain.Add(r.Event); err != nil {
			r.Findings = append(r.Findings, ledger.Finding{Kind: ledger.BrokenAt, Topic: r.Record.Topic, Partition: r.Record.Partition,
				Offset: r.Record.Offset, Stream: r.Event.Stream, Version: r.Event.Version, Detail: err.Error()})
		}
	}
	if p.json {
		return p.object(r)
	}
	var b strings.Builder
	if r.Fresh {
		fmt.Fprintf(&b, "%s %s/%d@%d %s %d %s\n", r.Event.Time, r.Record.Topic, r.Record.Partition, r.Record.Offset, r.Event.Stream, r.Event.Version, r.Event.Type)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "! %s\n", f)
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

func (p *printer) object(r reader.Read) error {
	l := line{Topic: r.Record.Topic, Partition: r.Record.Partition, Offset: r.Record.Offset, Findings: r.Findings}
	if e := r.Event; r.Fresh {
		l.Stream, l.Version, l.ID, l.Type, l.Time, l.Actor, l.Hash, l.Replayed = e.Stream, e.Version, &e.ID, e.Type, e.Time, &e.Actor, &e.Hash, e.Replayed
		if json.Valid(e.Payload) {
			l.Payload = e.Payload
		}
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = p.out.Write(append(b, '\n'))
	return err
}

// holes tells at the end which chains are not whole.
func (p *printer) holes() error {
	if p.chain == nil {
		return nil
	}
	var errs []error
	for _, h := range p.chain.Holes() {
		errs = append(errs, fmt.Errorf("the chain of %s is whole up to version %d; %d events wait for version %d", h.Stream, h.Missing-1, h.Waiting, h.Missing))
	}
	return errors.Join(errs...)
}
