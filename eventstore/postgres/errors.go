package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// SQLSTATEs that the migrations raise, and those that need a name here.
const (
	codeRefusedChange    = "EP001"
	codeForeignRow       = "EP002"
	codeUniqueViolation  = "23505"
	codeTwiceInStatement = "21000"
	codeSerialization    = "40001"
	codeDeadlock         = "40P01"
	codeLockNotAvailable = "55P03"
)

// errClash stands for "refused because another append came first"; the caller
// of the statement finds out what the stream looks like now.
var errClash = errors.New("append clashed")

// appendError sorts an error of the append statement into: errClash,
// ErrRowTaken, ErrInvalid (nothing stored, for good), ErrUnavailable (perhaps
// stored if the connection broke).
func appendError(doing string, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return unavailable(doing, err)
	}
	switch {
	case pg.Code == codeSerialization, pg.Code == codeDeadlock, pg.Code == codeRefusedChange:
		return errors.Join(errClash, err)
	case pg.Code == codeUniqueViolation && (pg.TableName == "events" || pg.TableName == "stream_heads"):
		return errors.Join(errClash, err)
	case pg.Code == codeForeignRow, pg.Code == codeUniqueViolation, pg.Code == codeTwiceInStatement:
		return fmt.Errorf("%s: %w (table %s): %w", doing, eventstore.ErrRowTaken, pg.TableName, err)
	case strings.HasPrefix(pg.Code, "22"), strings.HasPrefix(pg.Code, "23"):
		return fmt.Errorf("%s: %w: %w", doing, eventstore.ErrInvalid, err)
	case ofDatabase(pg):
		return unavailable(doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// definite reports whether the server itself said that the statement failed, so
// that nothing of it was stored.
func definite(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "08") && !strings.HasPrefix(pg.Code, "57P")
}

// ofDatabase tells errors that say something about the server's state from
// those that say something about the statement.
func ofDatabase(pg *pgconn.PgError) bool {
	switch pg.Code[:2] {
	case "08", // connection
		"53", // resources: disk full, too many connections
		"55", // lock timeout
		"57", // shutdown, cancelled by timeout
		"58": // I/O
		return true
	}
	return pg.Code == "25006" || // read-only: a standby
		pg.Code == "28000" || pg.Code == "28P01" || pg.Code == "3D000" // cannot log in
}

// readError wraps an error of a read.
func readError(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, errors.Join(ctx.Err(), err))
	}
	var pg *pgconn.PgError
	if errors.Is(err, errCorrupt) || errors.As(err, &pg) && !ofDatabase(pg) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return unavailable(doing, err)
}

// errCorrupt marks a row that the append statement cannot have written.
var errCorrupt = errors.New("corrupt row")
