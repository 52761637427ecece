package pgembed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// User is the superuser's name, and Database the database that URL names.
const (
	User     = "postgres"
	Database = "postgres"
)

// Server is one PostgreSQL server. Its methods may be called from any
// goroutine.
type Server struct {
	// URL opens the database postgres as superuser. It holds the password.
	URL string
	// Binaries is the installation in use.
	Binaries Binaries

	mu      sync.Mutex
	dir     *directory
	opts    Options
	port    int
	running *postmaster
	stopped bool
}

// Start makes the data if there is none and returns when the server takes
// connections. ctx bounds the start only; the server runs until Stop, or until
// this process ends.
func Start(ctx context.Context, opts Options) (*Server, error) {
	who, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(ctx, opts.Dir, who)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, opts: opts, port: opts.Port}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting PostgreSQL: %w", err), dir.close())
	}
	return s, nil
}

func (s *Server) begin(ctx context.Context) error {
	major, err := s.dir.dataMajor()
	if err != nil {
		return err
	}
	s.Binaries, err = FindBinaries(ctx, major)
	if errors.Is(err, ErrNoBinaries) && !s.opts.NoDownload && os.Getenv("PGBIN") == "" {
		s.Binaries, err = Download(ctx)
	}
	if err != nil {
		return err
	}
	if major != 0 && major != s.Binaries.Major {
		return fmt.Errorf("the data in %s is of version %d and %s is version %d: install version %d, or use another folder",
			s.dir.data(), major, s.Binaries.Dir, s.Binaries.Major, major)
	}
	secret, err := s.dir.secret()
	if err != nil {
		return err
	}
	if major == 0 {
		if err := s.initialise(ctx); err != nil {
			return err
		}
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	s.URL = (&url.URL{
		Scheme: "postgres", User: url.UserPassword(User, secret),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: Database, RawQuery: "sslmode=disable",
	}).String()
	return nil
}

func (s *Server) initialise(ctx context.Context) error {
	// What an interrupted initdb left behind holds nothing of worth, as the
	// version file is there only once data can be.
	if err := os.RemoveAll(s.dir.data()); err != nil {
		return fmt.Errorf("clearing an unfinished data folder: %w", err)
	}
	args := []string{
		"--pgdata=" + s.dir.data(), "--username=" + User, "--pwfile=" + s.dir.password(),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if !s.opts.Fsync {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, s.Binaries.path("initdb"), args...)
	cmd.SysProcAttr = s.dir.who.sysProcAttr()
	cmd.Dir = s.dir.path
	cmd.Env = serverEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initialising the data with %s: %w\n%s", s.Binaries.path("initdb"), err, out)
	}
	return nil
}

// serverEnv keeps the caller's PG variables and secrets away from the server.
func serverEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// launch tries other ports when the chosen one was taken in between.
func (s *Server) launch(ctx context.Context) error {
	if err := s.dir.clearStalePid(ctx); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		port := s.port
		if port == 0 {
			free, err := freePort(ctx)
			if err != nil {
				return err
			}
			port = free
		}
		pm, err := startPostmaster(ctx, s.Binaries.path("postgres"), s.dir, s.arguments(port), s.opts.Log)
		if err == nil {
			s.port, s.running = port, pm
			return nil
		}
		if !errors.Is(err, errPortTaken) || s.port != 0 || attempt == 5 {
			return err
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func (s *Server) arguments(port int) []string {
	settings := [][2]string{
		{"listen_addresses", "127.0.0.1"},
		{"port", strconv.Itoa(port)},
		{"unix_socket_directories", ""},
		{"max_connections", "200"},
		{"shared_buffers", "128MB"},
		// Segments as files in the data folder leave nothing in the system
		// when a server is killed.
		{"dynamic_shared_memory_type", "mmap"},
		{"wal_level", "minimal"},
		{"max_wal_senders", "0"},
		{"jit", "off"},
		{"timezone", "UTC"},
		{"log_timezone", "UTC"},
		{"lc_messages", "C"},
		{"logging_collector", "off"},
		{"log_destination", "stderr"},
		{"log_checkpoints", "off"},
	}
	if !s.opts.Fsync {
		settings = append(settings, [2]string{"fsync", "off"}, [2]string{"full_page_writes", "off"}, [2]string{"synchronous_commit", "off"})
	}
	for name, value := range s.opts.Settings {
		settings = append(settings, [2]string{name, value})
	}
	args := []string{"-D", s.dir.data()}
	for _, kv := range settings {
		args = append(args, "-c", kv[0]+"="+kv[1])
	}
	return args
}

// DatabaseURL is URL with another database.
func (s *Server) DatabaseURL(name string) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return s.URL // built by this package, so it parses
	}
	u.Path = "/" + name
	return u.String()
}

// Pid is the postmaster's process id, 0 while none runs.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return 0
	}
	return s.running.pid
}

// Done is closed when the server process now running has ended, whoever ended
// it. After Restart there is another channel.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return s.running.done
}

// Kill ends the server and every process of it with SIGKILL, as a crash of the
// machine would, and returns when they are gone. The data stays for Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	err := s.running.kill()
	s.running = nil
	return err
}

// Restart stops the server in the ordinary way, if it runs, and starts it on
// the same data, port and password.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("restarting PostgreSQL: it was stopped for good, start another one")
	}
	if s.running != nil {
		if err := s.running.stop(); err != nil {
			return fmt.Errorf("restarting PostgreSQL: %w", err)
		}
		s.running = nil
	}
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("restarting PostgreSQL: %w", err)
	}
	return nil
}

// Stop ends the server, open connections included, and removes a temporary
// folder. It takes up to 20 seconds, usually far less than one. Further calls
// do nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	var err error
	if s.running != nil {
		if s.dir.temporary {
			err = s.running.abandon()
		} else {
			err = s.running.stop()
		}
		s.running = nil
	}
	return errors.Join(err, s.dir.close())
}

var errPortTaken = errors.New("the port is taken")

func explain(log string, exit error) error {
	if strings.Contains(log, "Address already in use") {
		return fmt.Errorf("%w: the server ended before it was ready: %w\n%s", errPortTaken, exit, log)
	}
	return fmt.Errorf("the server ended before it was ready: %w\n%s", exit, log)
}

const (
	stopTime = 10 * time.Second // for each signal
	killTime = 10 * time.Second
)
