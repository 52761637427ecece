package agent

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/platform-core/execution-plane-service/masker"
)

func inUTF16(order byteOrder, text string) []byte {
	var out []byte
	for _, u := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, u)
	}
	return out
}

func fromUTF16(order byteOrder, b []byte) string {
	var units []uint16
	for pair := range slices.Chunk(b, 2) {
		units = append(units, order.Uint16(pair))
	}
	return string(utf16.Decode(units))
}

// A text in UTF-16 is masked like every other, and stays one.
func TestWideTextsAreMasked(t *testing.T) {
	const value = "s3cr3t-Välue-99"
	q := &artifactQueue{at: &attempt{mask: masker.New()}}
	if _, err := q.at.mask.Add("v", []byte(value)); err != nil {
		t.Fatal(err)
	}
	text := "a report with " + value + " in it, größer 😀\r\n" + strings.Repeat("filler ", 8000) + "and again " + value + " at the end"
	want := strings.ReplaceAll(text, value, "[masked:v]")
	for name, order := range map[string]byteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		for _, mark := range []string{"", "\ufeff"} {
			var out bytes.Buffer
			in := inUTF16(order, mark+text)
			n, err := q.copyMasked("report", &out, iotest.HalfReader(bytes.NewReader(in)))
			if got := fromUTF16(order, out.Bytes()); err != nil || n != int64(len(in)) || got != mark+want {
				t.Errorf("%s endian, mark %q: %d of %d bytes, %v: %.100q", name, mark, n, len(in), err, got)
			}
		}
	}
}

// What is taken for UTF-16 and is none comes through as it was.
func TestWideTextsKeepEveryByte(t *testing.T) {
	q := &artifactQueue{at: &attempt{mask: masker.New()}}
	if _, err := q.at.mask.Add("v", []byte("s3cr3t-Value-99")); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		in := []byte{0xff, 0xfe}
		if r.IntN(2) == 0 {
			in = []byte{0xfe, 0xff}
		}
		for range r.IntN(200) {
			// Halves of pairs, in both byte orders, and anything.
			in = append(in, byte(0xd8+r.IntN(8)), byte(r.Uint32()), byte(r.Uint32()))
		}
		var out bytes.Buffer
		if n, err := q.copyMasked("x", &out, iotest.OneByteReader(bytes.NewReader(in))); err != nil || n != int64(len(in)) || !bytes.Equal(out.Bytes(), in) {
			t.Fatalf("%d of %d bytes, %v:\n%x becomes\n%x", n, len(in), err, in, out.Bytes())
		}
	}
}

func TestWhatIsWide(t *testing.T) {
	for block, want := range map[string]bool{
		"": false, "a": false, "plain text": false, "\x7fELF\x02\x01\x01\x00\x00\x00": false, "a\x00": false,
		"a\x00b\x00c\x00d\x00": true, "\x00a\x00b\x00c\x00d": true, "\xff\xfe": true, "\xfe\xffx": true,
		strings.Repeat("\x00", 100): false, "\x01\x00\x02\x00\x03\x00\x04\x00": false,
	} {
		if _, got := wideOrder([]byte(block)); got != want {
			t.Errorf("%q is UTF-16: %v", block, got)
		}
	}
}
