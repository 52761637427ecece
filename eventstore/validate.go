package eventstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// ErrInvalid is returned for an append that no repetition can make acceptable:
// a payload that is not JSON, a NUL or invalid UTF-8 in a text field, a text
// that does not match its digest, a row that its table does not take. Nothing
// of it was stored.
var ErrInvalid = errors.New("eventstore: invalid append")

// ErrRowTaken is returned when the key of an inline row belongs to another
// stream. Nothing of the append was stored, and no repetition helps.
var ErrRowTaken = errors.New("eventstore: inline row belongs to another stream")

// MaxStreamID is the longest stream id, in bytes.
const MaxStreamID = 200

// validate refuses what the database could not hold or could not hash alike.
func validate(a Append) error {
	if len(a.Events) == 0 {
		return fmt.Errorf("%w: no events", ErrInvalid)
	}
	if err := validStream(a.Stream); err != nil {
		return err
	}
	if a.Expected < 0 || (a.Expected == 0) != (a.PrevHash == Digest{}) {
		return fmt.Errorf("%w: expected version %d of %s does not go with its previous hash; take both from Load",
			ErrInvalid, a.Expected, a.Stream)
	}
	if a.CommandID == uuid.Nil {
		return fmt.Errorf("%w: append to %s without command id", ErrInvalid, a.Stream)
	}
	if len(a.State) > MaxState {
		return fmt.Errorf("%w: state of %s has %d bytes, at most %d", ErrTooLarge, a.Stream, len(a.State), MaxState)
	}
	for _, f := range [...]struct{ name, value string }{
		{"actor kind", a.Actor.Kind}, {"actor id", a.Actor.ID}, {"actor role", a.Actor.Role}, {"actor auth", a.Actor.Auth},
		{"operation id", a.OperationID}, {"plan node id", a.PlanNodeID}, {"traceparent", a.TraceParent},
	} {
		if err := validText(f.name, f.value); err != nil {
			return err
		}
	}
	for _, n := range a.Events {
		if err := validEvent(n); err != nil {
			return err
		}
	}
	for _, c := range a.Rows {
		if err := validRow(c); err != nil {
			return err
		}
	}
	for _, t := range a.Texts {
		if TextDigest(t.Salt, t.Bytes) != t.Digest {
			return fmt.Errorf("%w: a text of %s does not match its digest", ErrInvalid, a.Stream)
		}
	}
	return nil
}

// TextDigest returns the digest by which an event names a text.
func TextDigest(salt [16]byte, b []byte) Digest {
	h := sha256.New()
	h.Write(salt[:])
	h.Write(b)
	var d Digest
	h.Sum(d[:0])
	return d
}

func validStream(s StreamID) error {
	if len(s) == 0 || len(s) > MaxStreamID {
		return fmt.Errorf("%w: a stream id has 1 to %d bytes, not %d", ErrInvalid, MaxStreamID, len(s))
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return fmt.Errorf("%w: stream id %q is not printable ASCII", ErrInvalid, s)
		}
	}
	return nil
}

func validEvent(n NewEvent) error {
	if n.Type == "" || n.Schema < 1 {
		return fmt.Errorf("%w: an event needs a type and a schema from 1, not %q and %d", ErrInvalid, n.Type, n.Schema)
	}
	if err := validText("type", n.Type); err != nil {
		return err
	}
	if len(n.Payload) > MaxPayload {
		return fmt.Errorf("%w: payload of %s has %d bytes, at most %d", ErrTooLarge, n.Type, len(n.Payload), MaxPayload)
	}
	if !json.Valid(n.Payload) || !utf8.Valid(n.Payload) {
		return fmt.Errorf("%w: payload of %s is not JSON in UTF-8", ErrInvalid, n.Type)
	}
	return nil
}

func validRow(c Change) error {
	row := bytes.TrimLeft(c.Row, " \t\r\n")
	if len(row) == 0 || row[0] != '{' || !json.Valid(row) || !utf8.Valid(row) {
		return fmt.Errorf("%w: a row of %s is not a JSON object in UTF-8", ErrInvalid, c.Table)
	}
	if escapesNUL(row) {
		return fmt.Errorf("%w: a row of %s holds a NUL, which no text column takes", ErrInvalid, c.Table)
	}
	return nil
}

// escapesNUL reports whether JSON text holds the escape \u0000. The backslash
// counts only if it is not itself escaped.
func escapesNUL(b []byte) bool {
	for {
		i := bytes.Index(b, []byte(`\u0000`))
		if i < 0 {
			return false
		}
		before := 0
		for before < i && b[i-1-before] == '\\' {
			before++
		}
		if before%2 == 0 {
			return true
		}
		b = b[i+1:]
	}
}

func validText(name, s string) error {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		return fmt.Errorf("%w: %s holds a NUL or is not UTF-8", ErrInvalid, name)
	}
	return nil
}
