package agent

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/masker"
)

// firstBlock is how much of a file says whether it is a text, in bytes.
const firstBlock = 8 << 10

// copyMasked copies a text through the masker, one in UTF-16 as the text that it is,
// and anything else as it is: a mark within it would break it. That it shows a secret is noted; the scan of the bundle
// decides. n is what was read.
func (q *artifactQueue) copyMasked(name string, dst io.Writer, src io.Reader) (n int64, err error) {
	first := make([]byte, firstBlock)
	got, err := io.ReadFull(src, first)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	all := io.MultiReader(bytes.NewReader(first[:got]), src)
	if order, wide := wideOrder(first[:got]); wide {
		return q.copyWide(order, dst, all)
	}
	if !isText(first[:got], got == firstBlock) {
		seen := masker.NewWriter(io.Discard, q.at.mask)
		n, err = io.Copy(struct{ io.Writer }{io.MultiWriter(dst, seen)}, all)
		err = errors.Join(err, seen.Close())
		for reference, hits := range seen.Counts() {
			q.at.note("artifact_shows_secret", map[string]any{"name": name, "secret": reference, "hits": hits})
		}
		return n, err
	}
	w := masker.NewWriter(dst, q.at.mask)
	n, err = io.Copy(struct{ io.Writer }{w}, all)
	return n, errors.Join(err, w.Close())
}

// isText takes UTF-8 without NUL for a text. A block that is cut may end within a
// character.
func isText(block []byte, cut bool) bool {
	if bytes.IndexByte(block, 0) >= 0 {
		return false
	}
	for len(block) > 0 {
		r, n := utf8.DecodeRune(block)
		if r == utf8.RuneError && n == 1 {
			return cut && len(block) < utf8.UTFMax && !utf8.FullRune(block)
		}
		block = block[n:]
	}
	return true
}
