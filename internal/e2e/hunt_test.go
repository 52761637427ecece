package e2e_test

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/jackc/pgx/v5"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// hunt looks for traces of secrets in everything that a deployment leaves behind.
// It knows nothing of the masker or of the scan: it has the values and looks for
// their windows, in the forms that tools print.
type hunt struct {
	t       *testing.T
	windows map[[huntWindow]byte][]huntTrace // by how they begin
	looked  map[string]int                   // places by kind
	bytes   int64
}

// huntWindow is the shortest trace that is looked for, in symbols of a form. The
// values are random, so shorter ones would be met by chance. Of hex digits, of
// which the ledger is full, eight would be in one run of fifty, so twice as many are
// looked for.
const huntWindow = 8

// huntTrace is a window of a value in one form.
type huntTrace struct{ form, text string }

// huntLength is how many bytes of a form are looked for.
func huntLength(form string) int {
	switch form {
	case "hex", "HEX", "utf-16":
		return 2 * huntWindow
	}
	return huntWindow
}

func newHunt(t *testing.T, values ...string) *hunt {
	t.Helper()
	h := &hunt{t: t, windows: map[[huntWindow]byte][]huntTrace{}, looked: map[string]int{}}
	for _, v := range values {
		for form, text := range huntForms(v) {
			n := huntLength(form)
			if len(text) < n {
				t.Fatalf("the form %s of a value is too short to hunt for", form)
			}
			for i := 0; i+n <= len(text); i++ {
				begin := [huntWindow]byte([]byte(text[i : i+huntWindow]))
				h.windows[begin] = append(h.windows[begin], huntTrace{form, text[i : i+n]})
			}
		}
	}
	return h
}

func huntForms(v string) map[string]string {
	quoted, _ := json.Marshal(v)
	wide := utf16.Encode([]rune(v))
	var utf16le []byte
	for _, u := range wide {
		utf16le = append(utf16le, byte(u), byte(u>>8))
	}
	forms := map[string]string{
		"raw": v, "json": string(quoted[1 : len(quoted)-1]), "hex": hex.EncodeToString([]byte(v)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(v))),
		"url": url.QueryEscape(v), "base32": strings.TrimRight(base32.StdEncoding.EncodeToString([]byte(v)), "="), "utf-16": string(utf16le),
	}
	for align := range 3 {
		// The symbols that depend on the neighbours are left out.
		in := append(bytes.Repeat([]byte{'.'}, align), v...)
		in = in[:len(in)/3*3]
		from := 0
		if align > 0 {
			from = 4
		}
		forms[fmt.Sprintf("base64+%d", align)] = base64.StdEncoding.EncodeToString(in)[from:]
		forms[fmt.Sprintf("base64url+%d", align)] = base64.URLEncoding.EncodeToString(in)[from:]
	}
	return forms
}

// look reports a trace in b, which is called name.
func (h *hunt) look(kind, name string, b []byte) {
	h.t.Helper()
	h.looked[kind]++
	h.bytes += int64(len(b))
	if form, at := h.trace(b); form != "" {
		h.t.Errorf("%s %s holds a secret (%s) at byte %d of %d", kind, name, form, at, len(b))
	}
}

// trace is the first trace in b: its form and place; "" for none.
func (h *hunt) trace(b []byte) (form string, at int) {
	for i := 0; i+huntWindow <= len(b); i++ {
		for _, w := range h.windows[[huntWindow]byte(b[i:])] {
			if bytes.HasPrefix(b[i:], []byte(w.text)) {
				return w.form, i
			}
		}
	}
	return "", 0
}

var byteaText = regexp.MustCompile(`\\\\x([0-9a-f]+)`)

// database reads every table, and decodes what is stored as bytes.
func (h *hunt) database(w *world) {
	h.t.Helper()
	conn, err := pgx.Connect(w.ctx, w.db)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(w.ctx)
	rows, err := conn.Query(w.ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		h.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.t.Fatal(err)
	}
	for _, table := range tables {
		var b bytes.Buffer
		if _, err := conn.PgConn().CopyTo(w.ctx, &b, "COPY (SELECT * FROM "+table+") TO STDOUT"); err != nil {
			h.t.Fatalf("read table %s: %v", table, err)
		}
		h.look("table", table, b.Bytes())
		for _, m := range byteaText.FindAllSubmatch(b.Bytes(), -1) {
			if raw, err := hex.DecodeString(string(m[1])); err == nil {
				h.look("bytes", "of table "+table, raw)
			}
		}
	}
}

// bucket reads every object, and its key.
func (h *hunt) bucket(w *world) {
	h.t.Helper()
	c, err := minio.New(w.s3.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(w.s3.AccessKey, w.s3.SecretKey, "")})
	if err != nil {
		h.t.Fatal(err)
	}
	for o := range c.ListObjects(w.ctx, w.s3.Bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			h.t.Fatal(o.Err)
		}
		body, err := c.GetObject(w.ctx, w.s3.Bucket, o.Key, minio.GetObjectOptions{})
		if err != nil {
			h.t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(body); err != nil {
			h.t.Fatalf("read object %s: %v", o.Key, err)
		}
		body.Close()
		h.look("key", o.Key, []byte(o.Key))
		h.look("object", o.Key, b.Bytes())
	}
}

// folder reads every file below dir; what vanishes meanwhile is no trace.
func (h *hunt) folder(kind, dir string) {
	h.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it vanished
		}
		if b, err := os.ReadFile(path); err == nil {
			h.look(kind, path, append([]byte(path+"\n"), b...))
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// delivered reads every record of every topic, and what receivers were sent.
func (h *hunt) delivered(d *delivered) {
	h.t.Helper()
	records, err := d.broker.Read(d.ctx, d.topics.All()...)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range records {
		name := fmt.Sprintf("%d of %s", r.Offset, r.Topic)
		h.look("record", name, r.Value)
		for _, x := range r.Headers {
			h.look("header", name, []byte(x.Key+": "+x.Value))
		}
		h.look("record key", name, []byte(r.Key))
	}
	for _, e := range d.endpoints {
		h.folder("received file", e.Peer.Dir)
		for _, r := range e.Peer.Receiver.Deliveries() { // in the file they are in base64
			h.look("callback", r.AttemptID, r.Body)
		}
	}
}

// processes reads the arguments and the environment of every process below this one.
func (h *hunt) processes() {
	h.t.Helper()
	for _, p := range proctest.Descendants(os.Getpid()) {
		for _, file := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, file)); err == nil {
				h.look("process", fmt.Sprintf("%d %s", p.PID, file), b)
			}
		}
	}
}

// wantLooked fails where a kind of place was not looked at: then nothing was shown.
func (h *hunt) wantLooked(kinds ...string) {
	h.t.Helper()
	for _, k := range kinds {
		if h.looked[k] == 0 {
			h.t.Errorf("no %s was looked at; looked at were %v", k, h.looked)
		}
	}
	h.t.Logf("looked for %d windows in %d bytes: %v", len(h.windows), h.bytes, h.looked)
}

// The hunt itself must find what it is to find.
func TestHuntFinds(t *testing.T) {
	value := "q7Rf+x2/Lm9\"Wd<0ZpK&"
	h := newHunt(t, value)
	for form, text := range huntForms(value) {
		if got, _ := h.trace([]byte("before " + text[len(text)-huntLength(form):] + " after")); got == "" {
			t.Errorf("%s is not found", form)
		}
	}
	if form, at := h.trace([]byte("before and after")); form != "" {
		t.Errorf("found %s at %d where nothing is", form, at)
	}
}
