package verification

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Modes of a PostgreSQL expectation.
const (
	modeAccepts   = "accepts_connections"
	modeReadWrite = "read_write"
	modeReadOnly  = "read_only"
)

// maxPostgresMessage bounds one message of the server, in bytes.
const maxPostgresMessage = 64 << 10

type postgresExpectation struct {
	named
	Mode         string `json:"mode"`
	MaxLatencyMS int    `json:"max_latency_ms"`
}

type postgresProber struct {
	plan     plan
	guard    *guard
	user     string
	database string
	named    bool // the job named the database
	tls      *tls.Config
	expect   []postgresExpectation
}

func newPostgresProber(req Request, p plan, g *guard) (*postgresProber, error) {
	params := struct {
		User     string                `json:"user"`
		Database string                `json:"database"`
		TLS      *tlsParameters        `json:"tls"`
		Expect   []postgresExpectation `json:"expect"`
	}{}
	if err := decode(req.Parameters, &params); err != nil {
		return nil, err
	}
	pg := &postgresProber{plan: p, guard: g, user: params.User, database: params.Database,
		named: params.Database != "", expect: params.Expect}
	if pg.user == "" {
		pg.user = p.resource.User
	}
	if pg.user == "" {
		pg.user = "postgres"
	}
	if pg.database == "" {
		pg.database = "postgres"
	}
	if params.TLS != nil {
		config, err := params.TLS.config(p.target.Host)
		if err != nil {
			return nil, err
		}
		pg.tls = config
	}
	return pg, nil
}

func (pg *postgresProber) expectations() []named {
	out := make([]named, len(pg.expect))
	for i, e := range pg.expect {
		out[i] = e.named
	}
	return out
}

// postgresAnswer is what the server let be seen.
type postgresAnswer struct {
	authentication string // none if the login succeeded, else what it demands
	sqlstate       string // of its refusal
	queried        bool   // the login succeeded and the query answered
	inRecovery     bool
	readOnly       bool
}

func (pg *postgresProber) try(ctx context.Context) observation {
	began := time.Now()
	var facts attributes
	answer, err := pg.ask(ctx, &facts)
	latency := time.Since(began)
	answer.describe(&facts)
	attrs := facts.snapshot()
	if err != nil {
		return failedTry(err, latency, len(pg.expect), attrs)
	}
	o := observation{seen: true, latency: latency, attrs: attrs}
	for _, e := range pg.expect {
		o.judged = append(o.judged, pg.judge(e.Mode, answer).and(withinLatency(latency, e.MaxLatencyMS)))
	}
	return o
}

func (a postgresAnswer) describe(attrs *attributes) {
	if a.authentication != "" {
		attrs.set("authentication", a.authentication)
	}
	if a.sqlstate != "" {
		attrs.set("sqlstate", a.sqlstate)
	}
	if a.queried {
		attrs.set("in_recovery", a.inRecovery)
		attrs.set("read_only", a.readOnly)
	}
}

func (pg *postgresProber) judge(mode string, a postgresAnswer) judgement {
	if reason := pg.refusal(a.sqlstate); reason != "" {
		return broke(reason)
	}
	if a.authentication == "none" && !a.queried {
		return broke(reasonQueryFailed)
	}
	switch mode {
	case modeReadWrite, modeReadOnly:
		if !a.queried {
			return judgement{unseen, reasonLoginNeeded}
		}
	default:
		return judgement{sight: held}
	}
	writable := !a.inRecovery && !a.readOnly
	switch {
	case mode == modeReadOnly:
		return judged(!writable, reasonReadWrite)
	case a.inRecovery:
		return broke(reasonInRecovery)
	default:
		return judged(writable, reasonReadOnly)
	}
}

// refusal says whether an SQLSTATE means that the server takes no connections
// now. A refused user, password or host is the answer of a server that does.
func (pg *postgresProber) refusal(sqlstate string) string {
	switch sqlstate {
	case "57P01", "57P02", "57P03": // shutting down, crashed, starting up
		return reasonStarting
	case "53300": // too_many_connections
		return reasonTooManyConnections
	case "3D000": // invalid_catalog_name
		if pg.named {
			return reasonDatabaseMissing
		}
	}
	return ""
}

// ask speaks the protocol as far as it goes without a password. The library's
// own connect is not used, as it reads PG* variables and files of the machine.
func (pg *postgresProber) ask(ctx context.Context, attrs *attributes) (postgresAnswer, error) {
	conn, err := pg.guard.dial(ctx, pg.plan.target.Host, pg.plan.target.Port)
	if err != nil {
		return postgresAnswer{}, err
	}
	defer func() { conn.Close() }()
	defer bindToContext(ctx, conn)()
	attrs.set("address", conn.RemoteAddr().String())
	if pg.tls != nil {
		secure, sqlstate, err := startTLS(ctx, conn, pg.tls)
		if err != nil || sqlstate != "" {
			return postgresAnswer{sqlstate: sqlstate}, err
		}
		describeTLS(secure.ConnectionState(), attrs)
		conn = secure
	}
	f := pgproto3.NewFrontend(conn, conn)
	f.SetMaxBodyLen(maxPostgresMessage)
	f.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersionNumber, Parameters: map[string]string{
		"user": pg.user, "database": pg.database, "application_name": "execution-plane-verification"}})
	if err := f.Flush(); err != nil {
		return postgresAnswer{}, fmt.Errorf("sending the startup message: %w", err)
	}
	answer, err := login(f)
	if err != nil || answer.authentication != "none" {
		return answer, err
	}
	return query(f, answer)
}

// startTLS asks for TLS. A server without it is an answer, and so is an error
// it sends instead.
func startTLS(ctx context.Context, conn net.Conn, config *tls.Config) (secure *tls.Conn, sqlstate string, err error) {
	request := binary.BigEndian.AppendUint32(nil, 8)
	request = binary.BigEndian.AppendUint32(request, 80877103)
	if _, err := conn.Write(request); err != nil {
		return nil, "", fmt.Errorf("asking for TLS: %w", err)
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return nil, "", fmt.Errorf("reading the answer to the request for TLS: %w", err)
	}
	switch reply[0] {
	case 'S':
		secure, err := handshake(ctx, conn, config)
		return secure, "", err
	case 'N':
		return nil, "", &peerError{class: classTLSRefused}
	default:
		return nil, "", &peerError{class: classProtocol}
	}
}

// login reads until the server lets us in, demands something, or refuses.
func login(f *pgproto3.Frontend) (postgresAnswer, error) {
	for {
		msg, err := receive(f)
		if err != nil {
			return postgresAnswer{}, err
		}
		switch m := msg.(type) {
		case *pgproto3.AuthenticationOk:
			return postgresAnswer{authentication: "none"}, nil
		case *pgproto3.AuthenticationCleartextPassword:
			return postgresAnswer{authentication: "password"}, nil
		case *pgproto3.AuthenticationMD5Password:
			return postgresAnswer{authentication: "md5"}, nil
		case *pgproto3.AuthenticationSASL:
			return postgresAnswer{authentication: "scram"}, nil
		case *pgproto3.AuthenticationGSS, *pgproto3.AuthenticationGSSContinue:
			return postgresAnswer{authentication: "gss"}, nil
		case *pgproto3.ErrorResponse:
			return postgresAnswer{sqlstate: sqlstateOf(m)}, nil
		case *pgproto3.NoticeResponse, *pgproto3.NegotiateProtocolVersion:
		default:
			return postgresAnswer{}, &peerError{class: classProtocol}
		}
	}
}

const readyQuery = "SELECT 1, pg_is_in_recovery(), current_setting('transaction_read_only')"

// query runs one real query after the login.
func query(f *pgproto3.Frontend, a postgresAnswer) (postgresAnswer, error) {
	sent := false
	for {
		msg, err := receive(f)
		if err != nil {
			return a, err
		}
		switch m := msg.(type) {
		case *pgproto3.ErrorResponse:
			a.sqlstate, a.queried = sqlstateOf(m), false
			return a, nil
		case *pgproto3.DataRow:
			if len(m.Values) != 3 {
				return a, &peerError{class: classProtocol}
			}
			a.queried = true
			a.inRecovery, a.readOnly = string(m.Values[1]) == "t", string(m.Values[2]) == "on"
		case *pgproto3.ReadyForQuery:
			if sent {
				f.Send(&pgproto3.Terminate{})
				// A server that has hung up by now has answered all the same.
				_ = f.Flush()
				return a, nil
			}
			sent = true
			f.Send(&pgproto3.Query{String: readyQuery})
			if err := f.Flush(); err != nil {
				return a, fmt.Errorf("sending the query: %w", err)
			}
		}
	}
}

// receive tells a broken connection from bytes that are no PostgreSQL.
func receive(f *pgproto3.Frontend) (pgproto3.BackendMessage, error) {
	msg, err := f.Receive()
	if err == nil {
		return msg, nil
	}
	if class, _ := classify(err); class != classNetwork {
		return nil, err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return nil, err
	}
	return nil, &peerError{classProtocol, err}
}

// sqlstateOf gives the code if it has the form of one: the text is the peer's.
func sqlstateOf(m *pgproto3.ErrorResponse) string {
	if len(m.Code) != 5 {
		return "XX000"
	}
	for _, c := range []byte(m.Code) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return "XX000"
		}
	}
	return m.Code
}
