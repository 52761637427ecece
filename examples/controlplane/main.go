// Command controlplane is the smallest control plane that takes callbacks: it
// verifies and keeps results, prints one line for each, and can compare what was
// pushed with what the service gives by pull.
//
// Write the secret, the same for both sides, and an endpoint for the service:
//
//	echo "whsec_$(openssl rand -base64 32)" > callback.secret
//
//	# callbacks.yaml
//	endpoints:
//	  - name: control-plane
//	    url: http://127.0.0.1:9000/results
//	    secret_file: callback.secret
//	    allow: [loopback]
//	    allow_http: true
//
// Receive, until interrupted:
//
//	go run ./examples/controlplane -listen 127.0.0.1:9000 -secret-file callback.secret -state received
//
// Catch up by pull, compare, and end; the exit code is 1 if any bytes differ. Run it
// while the receiver does not run: both write the same folder.
//
//	EXECUTION_PLANE_TOKEN=ep_… go run ./examples/controlplane -secret-file callback.secret -state received \
//	    -catch-up http://127.0.0.1:8080
//
// The signature is of Standard Webhooks, so that a library in any language verifies
// it; the headers Execution-Sequence and Execution-Attempt are not signed. A result
// may come more than once and in any order: webhook-id is the same each time, and so
// are the bytes. Answer 2xx only when the result is safe; anything else, and an
// answer that breaks off, makes it come again for 72 hours.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/examples/controlplane/receiver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:9000", "address to receive on")
	secretFile := flag.String("secret-file", "callback.secret", "file with one whsec_ secret for each line")
	state := flag.String("state", "received", "folder in which results are kept")
	catchUp := flag.String("catch-up", "", "URL of the service: read all results, compare them with those kept, and end; the token is in EXECUTION_PLANE_TOKEN")
	flag.Parse()
	secrets, err := readSecrets(*secretFile)
	if err != nil {
		return err
	}
	r, err := receiver.Open(receiver.Options{Dir: *state, Secrets: secrets, Out: os.Stdout})
	if err != nil {
		return err
	}
	if *catchUp != "" {
		err = compare(ctx, r, *catchUp)
	} else {
		err = serve(ctx, r, *listen)
	}
	return errors.Join(err, r.Close())
}

// readSecrets takes the lines that begin with whsec_. Others are comments, or
// private keys that only the sender has a use for.
func readSecrets(name string) ([]string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "whsec_") {
			out = append(out, line)
		}
	}
	return out, nil
}

func serve(ctx context.Context, r *receiver.Receiver, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "receiving on http://%s\n", l.Addr())
	s := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.Shutdown(last)
}

func compare(ctx context.Context, r *receiver.Receiver, service string) error {
	found, err := r.CatchUp(ctx, &http.Client{Timeout: time.Minute}, service, os.Getenv("EXECUTION_PLANE_TOKEN"))
	if err != nil {
		return err
	}
	fmt.Printf("%d the same, %d new, %d different, cursor %s\n", found.Same, found.New, len(found.Different), found.Cursor)
	if len(found.Different) > 0 {
		return fmt.Errorf("pushed bytes differ from pulled ones: %s", strings.Join(found.Different, " "))
	}
	return nil
}
