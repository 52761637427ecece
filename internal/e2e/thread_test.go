package e2e_test

import (
	"context"

	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/ledger"
)

func TestTCPConnectThroughTheEmbeddedDefault(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(ctx, embedded.Options{Version: "1.0.0", Runner: &embedded.Runner{Pool: "default", Slots: 2, Executable: self}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	c, err := client.New(client.Config{BaseURL: s.URL, Token: s.ControlPlaneToken})
	if err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`{"operation_id":%q,"plan_node_id":"check","attempt_id":%q,"job_type":"verification","action":"verify.tcp.connect",
		"target":{"environment":"demo","resources":[{"resource_id":"node/1","resource_type":"compute.node","binding":{"address":"127.0.0.1","port":%d}}]},
		"inputs":{"parameters":{"expect":[{"name":"port_open","connect":true}]}},
		"output_contract":{"evidence":["port_open"]},"controls":{"timeout_seconds":60}}`,
		uuid.NewString(), uuid.NewString(), l.Addr().(*net.TCPAddr).Port)
	receipt, first, err := c.Submit(ctx, []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if !first {
		t.Fatal("not first")
	}
	res, pending, err := c.Result(ctx, receipt.AttemptID, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("pending %+v", pending)
	b := res
	t.Logf("%s", b)
	rep, err := ledger.Verify(ctx, s.Plane.Pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", rep)
	_ = domain.StatusSucceeded
}
