package callbacks

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// BenchmarkDelivery delivers to one living endpoint, alone and beside two dead ones:
// the pair tells what a dead endpoint costs the others. The ledger is in memory.
func BenchmarkDelivery(b *testing.B) {
	for name, dead := range map[string]bool{"alone": false, "beside dead ones": true} {
		b.Run(name, func(b *testing.B) {
			living := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer living.Close()
			gone, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			hangs, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel and says nothing
			if err != nil {
				b.Fatal(err)
			}
			defer hangs.Close()
			gone.Close()
			list := []*endpoint{endpointAt(b, living.URL)}
			list[0].name = "living"
			if dead {
				for name, l := range map[string]net.Listener{"gone": gone, "hangs": hangs} {
					x := endpointAt(b, "http://"+l.Addr().String())
					x.name = name
					list = append(list, x)
				}
			}
			l := newLedger()
			for range b.N {
				l.add("")
			}
			w, _ := newWorker(l, list...)
			w.Woken = nil
			b.ResetTimer()
			began := time.Now()
			stop := start(b, w)
			l.wait(b, "delivery of all", func() bool { return l.in("living", domain.CallbackDone) == b.N })
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "deliveries/s")
			b.StopTimer()
			stop()
		})
	}
}
