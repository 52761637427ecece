package masker_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// ordinaryText returns n bytes of log lines as tools print them.
func ordinaryText(n int) []byte {
	rng := rand.New(rand.NewPCG(7, 7))
	var out []byte
	for len(out) < n {
		out = append(out, benignLine(rng)...)
		out = append(out, '\n')
	}
	return out[:n]
}

func token(rng *rand.Rand, n int) string {
	const symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
	b := make([]byte, n)
	for i := range b {
		b[i] = symbols[rng.IntN(len(symbols))]
	}
	return string(b)
}

type justWrites struct{ w io.Writer }

func (j justWrites) Write(p []byte) (int, error) { return j.w.Write(p) }

func BenchmarkWriter(b *testing.B) {
	text := ordinaryText(1 << 20)
	b.Run("plain copy", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		dst := make([]byte, len(text))
		for b.Loop() {
			copy(dst, text)
		}
	})
	for _, secrets := range []int{2, 12, 40, 200} {
		b.Run(fmt.Sprintf("%d secrets", secrets), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			set := masker.New()
			patterns := 0
			for i := range secrets {
				report, err := set.Add(fmt.Sprintf("vault://kv/app#field%d", i), []byte(token(rng, 12+rng.IntN(40))))
				if err != nil {
					b.Fatal(err)
				}
				patterns += report.Patterns
			}
			w := masker.NewWriter(justWrites{io.Discard}, set)
			if _, err := w.Write(text); err != nil {
				b.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, _ = w.Write(text)
			}
			b.ReportMetric(float64(patterns), "patterns")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
			_ = w.Close()
			_ = set.Close()
		})
	}
}
