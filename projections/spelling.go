package projections

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// A row has a spelling: its columns one after the other, each as a letter for its
// kind and its value. Two rows of a table with the same spelling are the same row
// for the database too. The reverse need not hold, and a row may have none ("");
// the database must then be asked. What a fold gives and what a table holds are
// both spelled without the detour over JSON, which costs ten times as much.
const (
	cellNull = 'n'
	cellText = 's'
	cellUUID = 'u'
	cellInt  = 'i'
	cellBool = 'b'
	cellTime = 't' // microseconds since 2000
	cellJSON = 'j'
	cellList = 'a'
)

// epoch2000 is where the database's times begin, in microseconds of Unix time.
const epoch2000 = 946684800 * 1000000

// spell spells a row type's value; "" where it cannot be done exactly.
func spell(row any) string {
	v := reflect.ValueOf(row)
	b := make([]byte, 0, 256)
	for i := range v.NumField() {
		var ok bool
		if b, ok = appendValue(b, v.Field(i)); !ok {
			return ""
		}
	}
	return string(b)
}

// keyOf is the key of a change's row, for a fold's own map.
func keyOf(c change) string {
	v := reflect.ValueOf(c.row)
	b := make([]byte, 0, 64)
	for i, n := 0, keyFields()[c.table]; i < n; i++ { // rows begin with their keys
		f := v.Field(i)
		var ok bool
		if b, ok = appendValue(b, f); !ok {
			b = append(b, rowJSON(c.table, f.Interface())...)
		}
	}
	return string(b)
}

// keyFields is how many fields a table's key has.
var keyFields = sync.OnceValue(func() map[string]int {
	n := map[string]int{}
	for _, t := range WrittenTables() {
		n[t.Name] = len(t.Key)
	}
	return n
})

var (
	timeType = reflect.TypeFor[time.Time]()
	listType = reflect.TypeFor[[]string]()
)

// appendValue spells a field of a row type; false where the database would have to
// say what becomes of it.
func appendValue(b []byte, v reflect.Value) ([]byte, bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, cellNull), true
		}
		return appendValue(b, v.Elem())
	case reflect.String:
		return appendText(b, cellText, v.String())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return binary.BigEndian.AppendUint64(append(b, cellInt), uint64(v.Int())), true
	case reflect.Bool:
		return appendBool(b, v.Bool()), true
	case reflect.Map:
		if v.IsNil() {
			return append(b, cellNull), true
		}
	case reflect.Slice:
		if v.Type() != listType {
			return b, false
		}
		return appendList(b, v.Interface().([]string))
	case reflect.Struct:
		if v.Type() == timeType {
			return appendTime(b, v.Interface().(time.Time))
		}
		if id, ok := v.Interface().(interface{ UUID() uuid.UUID }); ok {
			u := id.UUID()
			return append(append(b, cellUUID), u[:]...), u != uuid.Nil
		}
	default:
		return b, false
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return b, false
	}
	return appendJSON(b, text)
}

func appendText(b []byte, kind byte, s string) ([]byte, bool) {
	b = binary.BigEndian.AppendUint32(append(b, kind), uint32(len(s)))
	return append(b, s...), utf8.ValidString(s) // JSON would change it
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, cellBool, 1)
	}
	return append(b, cellBool, 0)
}

func appendTime(b []byte, t time.Time) ([]byte, bool) {
	if t.Nanosecond()%1000 != 0 {
		return b, false
	}
	return binary.BigEndian.AppendUint64(append(b, cellTime), uint64(t.UnixMicro()-epoch2000)), true
}

func appendList(b []byte, list []string) ([]byte, bool) {
	if list == nil {
		return append(b, cellNull), true
	}
	b = binary.BigEndian.AppendUint32(append(b, cellList), uint32(len(list)))
	for _, s := range list {
		var ok bool
		if b, ok = appendText(b, cellText, s); !ok {
			return b, false
		}
	}
	return b, true
}

func appendJSON(b, text []byte) ([]byte, bool) {
	s, ok := documents.of(text)
	if !ok {
		return b, false
	}
	return appendText(b, cellJSON, s)
}

// documents spells JSON: members sorted, no space, numbers as they were written.
// The few documents that most rows have are remembered.
var documents = spelledDocuments{known: map[string]string{}}

type spelledDocuments struct {
	mu    sync.RWMutex
	known map[string]string
}

// documentsKept and documentKept bound what is remembered: documents, and bytes of each.
const (
	documentsKept = 2000
	documentKept  = 4096
)

func (d *spelledDocuments) of(text []byte) (string, bool) {
	d.mu.RLock()
	s, ok := d.known[string(text)]
	d.mu.RUnlock()
	if ok {
		return s, true
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return "", false
	}
	out, err := json.Marshal(v)
	if err != nil {
		return "", false
	}
	if s = string(out); len(text) <= documentKept {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.known) >= documentsKept {
			clear(d.known)
		}
		d.known[string(text)] = s
	}
	return s, true
}

// reading says where a result has a table's columns.
type reading struct {
	stream int
	fields []pgconn.FieldDescription
	at     []int // of each column of the table; -1: it is not there
	others []int // columns that the row type does not know
}

func readingOf(fields []pgconn.FieldDescription, skip int, columns []string) reading {
	r := reading{stream: -1, fields: fields, at: make([]int, len(columns))}
	for i := range r.at {
		r.at[i] = -1
	}
next:
	for i := skip; i < len(fields); i++ {
		if fields[i].Name == "stream" {
			r.stream = i
			continue
		}
		for n, c := range columns {
			if c == fields[i].Name {
				r.at[n] = i
				continue next
			}
		}
		r.others = append(r.others, i)
	}
	return r
}

// spell spells a row of a table as the database sent it, in binary form.
func (r reading) spell(b []byte, values [][]byte) ([]byte, bool) {
	for _, i := range r.others {
		if values[i] != nil {
			return b, false
		}
	}
	for _, i := range r.at {
		if i < 0 {
			return b, false
		}
		var ok bool
		if b, ok = appendCell(b, r.fields[i].DataTypeOID, values[i]); !ok {
			return b, false
		}
	}
	return b, true
}

func appendCell(b []byte, oid uint32, v []byte) ([]byte, bool) {
	if v == nil {
		return append(b, cellNull), true
	}
	switch {
	case oid == pgtype.TextOID:
		b = binary.BigEndian.AppendUint32(append(b, cellText), uint32(len(v)))
		return append(b, v...), true
	case oid == pgtype.UUIDOID && len(v) == 16:
		return append(append(b, cellUUID), v...), true
	case oid == pgtype.Int8OID && len(v) == 8:
		return append(append(b, cellInt), v...), true
	case oid == pgtype.Int4OID && len(v) == 4:
		return binary.BigEndian.AppendUint64(append(b, cellInt), uint64(int64(int32(binary.BigEndian.Uint32(v))))), true
	case oid == pgtype.BoolOID && len(v) == 1:
		return appendBool(b, v[0] != 0), true
	case oid == pgtype.TimestamptzOID && len(v) == 8:
		return append(append(b, cellTime), v...), true
	case oid == pgtype.JSONBOID && len(v) > 1 && v[0] == 1:
		if string(v[1:]) == "null" {
			return b, false // a document, not the lack of one
		}
		return appendJSON(b, v[1:])
	case oid == pgtype.TextArrayOID:
		return appendArray(b, v)
	}
	return b, false
}

// appendArray spells a text[]: dimensions, whether it has nulls, type, then of the
// one dimension the length and the lower bound, then the elements.
func appendArray(b, v []byte) ([]byte, bool) {
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(v[at:]) }
	if len(v) < 12 || u32(4) != 0 {
		return b, false
	}
	if u32(0) == 0 {
		return binary.BigEndian.AppendUint32(append(b, cellList), 0), true
	}
	if len(v) < 20 || u32(0) != 1 || u32(16) != 1 {
		return b, false
	}
	n := u32(12)
	b = binary.BigEndian.AppendUint32(append(b, cellList), n)
	v = v[20:]
	for range n {
		if len(v) < 4 || uint32(len(v)-4) < u32(0) {
			return b, false
		}
		size := u32(0)
		b = binary.BigEndian.AppendUint32(append(b, cellText), size)
		b, v = append(b, v[4:4+size]...), v[4+size:]
	}
	return b, true
}
